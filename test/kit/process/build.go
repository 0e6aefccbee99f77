package process

import (
	"fmt"
	"os"
	"os/exec"
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

// programs are those that were built, by what go build was asked for.
var programs struct {
	mu    sync.Mutex
	dir   string
	built map[string]error
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
	programs.dir, programs.built = dir, map[string]error{}
	return m.Run()
}

// Program is where a program is, once it is built.
func Program(name string) string { return filepath.Join(programs.dir, name) }

// Build builds a program of a package, from this module or what it depends on, with
// build tags or none. Once is enough for all tests.
func Build(t testing.TB, name, pkg string, tags ...string) {
	t.Helper()
	build(t, "-o", Program(name), "-tags", strings.Join(tags, ","), pkg)
}

// BuildSlicer builds etcd and the programs that make a Slicer, each under its own
// name. Nothing but Go need be installed.
func BuildSlicer(t testing.TB) {
	t.Helper()
	Build(t, "etcd", "go.etcd.io/etcd/server/v3")
	const cmd = module + "/cmd/"
	build(t, "-o", programs.dir+"/", cmd+"assigner", cmd+"distributor", cmd+"backupdist", cmd+"slicerctl")
}

func build(t testing.TB, args ...string) {
	t.Helper()
	programs.mu.Lock()
	defer programs.mu.Unlock()
	if programs.dir == "" {
		t.Fatal("TestMain does not call process.Main")
	}
	key := strings.Join(args, " ")
	err, known := programs.built[key]
	if !known {
		if out, failed := goBuild(args); failed != nil {
			err = fmt.Errorf("go build %s: %w\n%s", key, failed, out)
		}
		programs.built[key] = err
	}
	if err != nil {
		t.Fatal(err)
	}
}

// goBuild builds at the ordinary priority: a measurement may run at that of real
// time (chrt), at which compilers keep the whole machine from its work.
func goBuild(args []string) ([]byte, error) {
	// A process has the priority of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if was, err := unix.SchedGetAttr(0, 0); err == nil && was.Policy != unix.SCHED_NORMAL {
		if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0); err == nil {
			defer func() { _ = unix.SchedSetAttr(0, was, 0) }()
		}
	}
	// Debug information takes longest to link, and no test reads it.
	cmd := exec.Command("go", append([]string{"build", "-ldflags=-w"}, args...)...)
	cmd.Dir = Dir
	return cmd.CombinedOutput()
}
