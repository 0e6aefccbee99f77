package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is one rule left out or turned round: in File, Old, which stands there
// once, is replaced by New.
type mutant struct {
	Name, File, Old, New string
	// Rule is what the change breaks.
	Rule string
	// Tags are the build tags that its tests need.
	Tags string
	// NoCgo builds without cgo, where File is for such builds.
	NoCgo bool
	// Equivalent says why no test can tell the mutant from the code, if none can.
	Equivalent string
}

// apply returns the mutated file.
func (m mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(text), m.Old); n != 1 {
		return nil, fmt.Errorf("%s: %q stands %d times in %s, want once", m.Name, m.Old, n, m.File)
	}
	return []byte(strings.Replace(string(text), m.Old, m.New, 1)), nil
}

// outcome is what the tests made of a mutant.
type outcome struct {
	Mutant  string   `json:"mutant"`
	Rule    string   `json:"rule"`
	Killed  bool     `json:"killed"`
	Package string   `json:"package,omitempty"` // whose tests failed first
	Tests   []string `json:"tests,omitempty"`
	Why     string   `json:"why,omitempty"` // it survives
}

// suite is a set of tests, in the order in which they are tried: the quick ones first.
type suite struct {
	pkg  string
	args []string
}

var suites = []suite{
	{"./lease", nil},
	{"./slicelet", nil},
	{"./lease/serve", nil},
	{"./lease/remote", nil},
	{"./assigner/generate", nil},
	{"./lease/etcd", nil},
	{"./assigner", nil},
	{"./test/system/consistent", nil},
	{"./test/cluster", []string{"-run", "TestSeeds", "-seeds", "100"}},
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// try runs the suites that the mutant's file is part of, until one fails.
func (m mutant) try(root, dir string) (outcome, error) {
	o := outcome{Mutant: m.Name, Rule: m.Rule, Why: m.Equivalent}
	text, err := m.apply(root)
	if err != nil {
		return o, err
	}
	changed := filepath.Join(dir, "mutated.go")
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		return o, err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.File): changed}})
	if err != nil {
		return o, err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return o, err
	}
	for _, s := range suites {
		uses, err := m.usedBy(root, s.pkg)
		if err != nil {
			return o, err
		}
		if !uses {
			continue
		}
		args := append([]string{"test", "-overlay", list, "-failfast", "-timeout", "4m", "-tags", m.Tags, s.pkg}, s.args...)
		out, err := m.command(root, args...).CombinedOutput()
		switch {
		case err == nil:
			continue
		case strings.Contains(string(out), "[build failed]"), strings.Contains(string(out), "[setup failed]"):
			return o, fmt.Errorf("%s does not compile:\n%s", m.Name, out)
		}
		o.Killed, o.Package, o.Why = true, s.pkg, ""
		for _, f := range failed.FindAllStringSubmatch(string(out), -1) {
			o.Tests = append(o.Tests, f[1])
		}
		if len(o.Tests) == 0 {
			o.Tests = []string{lastLine(string(out))}
		}
		return o, nil
	}
	return o, nil
}

func (m mutant) command(root string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if m.NoCgo {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	return cmd
}

// usedBy reports whether the package or its tests link the mutant's.
func (m mutant) usedBy(root, pkg string) (bool, error) {
	out, err := m.command(root, "list", "-deps", "-test", "-f", "{{.Dir}}", pkg).Output()
	if err != nil {
		return false, fmt.Errorf("go list %s: %w", pkg, err)
	}
	return slices.Contains(strings.Split(string(out), "\n"), filepath.Join(root, filepath.Dir(m.File))), nil
}

func lastLine(out string) string {
	for _, l := range strings.Split(out, "\n") {
		if strings.HasPrefix(l, "panic:") || strings.HasPrefix(l, "fatal error:") {
			return l
		}
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}
