package deploy

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// update writes what is made from the chart anew.
var update = flag.Bool("update", false, "rewrite deploy/kubernetes/slicer.yaml and the table of values in deploy/docs/DEPLOY.md")

// top is the root of the repository.
const top = "../../.."

func path(parts ...string) string { return filepath.Join(append([]string{top, "deploy"}, parts...)...) }

func read(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(path(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// same compares a file of deploy/ with what it is made from, or with -update writes it.
func same(t *testing.T, want string, parts ...string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path(parts...), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got := strings.Split(read(t, parts...), "\n")
	for i, line := range strings.Split(want, "\n") {
		if i >= len(got) || got[i] != line {
			t.Fatalf("%s is out of date from line %d on, where %q is to stand: go -C test/system/deploy test . -update", filepath.Join(parts...), i+1, line)
		}
	}
	if n := strings.Count(want, "\n") + 1; len(got) != n {
		t.Fatalf("%s has %d lines, not %d", filepath.Join(parts...), len(got), n)
	}
}
