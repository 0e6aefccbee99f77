package main

import (
	"go/parser"
	"go/token"
	"os/exec"
	"strings"
	"testing"
)

// TestMutantsApply keeps the list in step with the code: each mutant changes what
// stands in its file once, into something that parses.
func TestMutantsApply(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(out))
	names := map[string]bool{}
	for _, m := range mutants {
		text, err := m.apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.File, text, 0); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		if names[m.Name] || m.Rule == "" || m.Old == m.New {
			t.Errorf("%s: the name stands twice, the rule is missing, or nothing changes", m.Name)
		}
		names[m.Name] = true
	}
	if len(mutants) < 46 {
		t.Errorf("%d mutants, want at least 46", len(mutants))
	}
}
