package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/slicer-project/slicer/assignment/waittest"
	"golang.org/x/sys/unix"
)

const module = "github.com/slicer-project/slicer"

// Dir is where programs are built: within the module, which a test of a nested one is not.
var Dir string

// programs are those that were built.
var programs struct {
	mu    sync.Mutex
	dir   string
	built map[program]error
}

// Main is for a TestMain: it runs the tests, parallel ones side by side, and removes what they had built.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "slicer-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "process:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	waittest.SideBySide()
	programs.dir, programs.built = dir, map[program]error{}
	return m.Run()
}

// Program is where a program is, once it is built.
func Program(name string) string { return filepath.Join(programs.dir, name) }

// Build builds a program of a package, from this module or what it depends on, with
// build tags or none. Once is enough for all tests.
func Build(t testing.TB, name, pkg string, tags ...string) {
	t.Helper()
	build(t, program{name, pkg, strings.Join(tags, ",")})
}

// BuildSlicer builds etcd and the programs that make a Slicer, each under its own
// name. Nothing but Go need be installed.
func BuildSlicer(t testing.TB) {
	t.Helper()
	all := []program{{name: "etcd", pkg: "go.etcd.io/etcd/server/v3"}}
	for _, name := range []string{"assigner", "distributor", "backupdist", "slicerctl"} {
		all = append(all, program{name: name, pkg: module + "/cmd/" + name})
	}
	build(t, all...)
}

// BuildIn builds programs of packages, each under the last element of its package's path,
// into a directory. It is for tests without Main.
func BuildIn(t testing.TB, dir string, pkgs ...string) {
	t.Helper()
	var all []program
	for _, pkg := range pkgs {
		all = append(all, program{name: path.Base(pkg), pkg: pkg})
	}
	if err := errors.Join(goBuilds(dir, all)...); err != nil {
		t.Fatal(err)
	}
}

// program is what to build, and the name under which it is wanted.
type program struct{ name, pkg, tags string }

// build builds what has not been built.
func build(t testing.TB, all ...program) {
	t.Helper()
	programs.mu.Lock()
	defer programs.mu.Unlock()
	if programs.dir == "" {
		t.Fatal("TestMain does not call process.Main")
	}
	var missing []program
	for _, p := range all {
		if _, known := programs.built[p]; !known {
			missing = append(missing, p)
		}
	}
	for i, err := range goBuilds(programs.dir, missing) {
		programs.built[missing[i]] = err
	}
	for _, p := range all {
		if err := programs.built[p]; err != nil {
			t.Fatal(err)
		}
	}
}

// goBuilds builds programs side by side, and returns an error or nil for each.
func goBuilds(dir string, all []program) []error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() { errs[i] = goBuild(dir, p) })
	}
	wg.Wait()
	return errs
}

// goBuild builds at the ordinary priority: a measurement may run at that of real
// time (chrt), at which compilers keep the whole machine from its work.
func goBuild(dir string, p program) error {
	// A process has the priority of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if was, err := unix.SchedGetAttr(0, 0); err == nil && was.Policy != unix.SCHED_NORMAL {
		if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0); err == nil {
			defer func() { _ = unix.SchedSetAttr(0, was, 0) }()
		}
	}
	// go run keeps what it has linked, and go build does not: one link does for the tests
	// of all packages. It is run by cp, which takes it instead. It has no debug information,
	// which takes longest to link and no test reads.
	cmd := exec.Command("go", "run", "-exec", "cp -f", "-tags", p.tags, p.pkg, filepath.Join(dir, p.name))
	cmd.Dir = Dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go run -tags %q %s: %w\n%s", p.tags, p.pkg, err, out)
	}
	return nil
}
