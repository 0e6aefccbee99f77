package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// suite is a set of tests, in the order in which they are tried: the quick ones first.
type suite struct {
	pkg  string
	args []string
}

// test/cluster has jobs in affinity mode only: it can notice what a mutant of the
// assigner does to those.
var suites = []suite{
	{"./assignment/subscriber/protocol", nil},
	{"./loadbalance/overload", nil},
	{"./lease/internal/table", nil},
	{"./lease", nil},
	{"./slicelet", nil},
	{"./distributor/fanout", nil},
	{"./lease/serve", []string{"-histories", "3"}},
	{"./lease/remote", nil},
	{"./assigner/generate", nil},
	{"./lease/etcd", nil},
	{"./lease/front", nil},
	{"./assigner", nil},
	{"./test/system/consistent", nil},
	{"./test/cluster", []string{"-test.run", "TestSeeds", "-seeds", "100"}},
}

// runner builds and runs tests, with and without a mutant.
type runner struct {
	root, dir string // the module's folder, and one for what is built

	without map[string]string // test binaries without a mutant, by package and build
	sound   map[string]bool   // tests that pass without a mutant, by binary and name
	deps    map[string][]string
}

// build is how test binaries are built.
type build struct {
	tags    string
	overlay string // none without a mutant
}

func newRunner(root, dir string) *runner {
	return &runner{root: root, dir: dir, without: map[string]string{}, sound: map[string]bool{}, deps: map[string][]string{}}
}

func (r *runner) goCommand(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = r.root
	return cmd
}

// overlay writes the mutant's file, and the list by which the compiler takes it.
func (r *runner) overlay(m mutant) (string, error) {
	text, err := m.apply(r.root)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(r.dir, "mutated.go")
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(r.root, m.File): changed}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(r.dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// links reports whether the package or its tests link the one in a folder.
func (r *runner) links(with build, pkg, folder string) (bool, error) {
	key := fmt.Sprint(pkg, with)
	if _, ok := r.deps[key]; !ok {
		out, err := r.goCommand("list", "-deps", "-test", "-tags", with.tags, "-f", "{{.Dir}}", pkg).Output()
		if err != nil {
			return false, fmt.Errorf("go list %s: %w", pkg, err)
		}
		r.deps[key] = strings.Split(string(out), "\n")
	}
	return slices.Contains(r.deps[key], filepath.Join(r.root, folder)), nil
}

// compile builds a package's test binary.
func (r *runner) compile(pkg string, with build, name string) (string, error) {
	path := filepath.Join(r.dir, name)
	args := []string{"test", "-c", "-o", path, "-tags", with.tags}
	if with.overlay != "" {
		args = append(args, "-overlay", with.overlay)
	}
	if out, err := r.goCommand(append(args, pkg)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s does not compile:\n%s", pkg, out)
	}
	return path, nil
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run runs tests of a binary until one fails, all that s names or only those whose
// names match. It returns the failed ones, or, if none is to blame, the
// line with which the binary has ended.
func (r *runner) run(s suite, binary, match string) ([]string, error) {
	args := append([]string{"-test.failfast", "-test.timeout", "4m"}, s.args...)
	if match != "" {
		args = append(args, "-test.run", match)
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = filepath.Join(r.root, s.pkg)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil, nil
	case !errors.As(err, &exit):
		return nil, err
	}
	var tests []string
	for _, f := range failed.FindAllStringSubmatch(string(out), -1) {
		tests = append(tests, f[1])
	}
	if len(tests) == 0 {
		tests = []string{lastLine(string(out))}
	}
	return tests, nil
}

// notices returns the tests of a suite that fail with the mutant. They must do so
// twice, and pass without it: a test that fails because the machine is busy, or in
// any case, has noticed nothing.
func (r *runner) notices(s suite, with, without build) ([]string, error) {
	binary, err := r.compile(s.pkg, with, "mutated.test")
	if err != nil {
		return nil, err
	}
	for range 3 {
		tests, err := r.run(s, binary, "")
		if err != nil || len(tests) == 0 {
			return nil, err
		}
		match := pattern(tests)
		again, err := r.run(s, binary, match)
		if err != nil {
			return nil, err
		}
		if len(again) == 0 {
			fmt.Fprintf(os.Stderr, "mutants: %s: %s failed once, and not again\n", s.pkg, tests[0])
			continue
		}
		return tests, r.passes(s, without, match)
	}
	return nil, nil
}

// passes returns an error unless tests pass without a mutant.
func (r *runner) passes(s suite, without build, match string) error {
	key := fmt.Sprint(s.pkg, without)
	if r.without[key] == "" {
		binary, err := r.compile(s.pkg, without, fmt.Sprintf("without-%d.test", len(r.without)))
		if err != nil {
			return err
		}
		r.without[key] = binary
	}
	if r.sound[key+match] {
		return nil
	}
	tests, err := r.run(s, r.without[key], match)
	if err != nil {
		return err
	}
	if len(tests) > 0 {
		return fmt.Errorf("%s: %s fails without the mutant too", s.pkg, tests[0])
	}
	r.sound[key+match] = true
	return nil
}

// pattern matches the top-level tests among these; it is empty if none is to blame.
func pattern(tests []string) string {
	var names []string
	for _, name := range tests {
		name, _, _ = strings.Cut(name, "/")
		if !isTest.MatchString(name) {
			return ""
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

var isTest = regexp.MustCompile(`^(Test|Example|Fuzz)\w*$`)

func lastLine(out string) string {
	for _, l := range strings.Split(out, "\n") {
		if strings.HasPrefix(l, "panic:") || strings.HasPrefix(l, "fatal error:") {
			return l
		}
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}
