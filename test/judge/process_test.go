package judge

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// bin is where binaries go, built when the first test needs them.
var (
	bin   string
	build = map[string]*sync.Once{"plain": {}, "sabotage": {}}
	built = map[string]error{}
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "slicer-judge-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
	bin = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func goBuild(t *testing.T, what string, builds ...[]string) {
	t.Helper()
	build[what].Do(func() {
		for _, args := range builds {
			if out, err := exec.Command("go", append([]string{"build"}, args...)...).CombinedOutput(); err != nil {
				built[what] = fmt.Errorf("go build %s: %w\n%s", strings.Join(args, " "), err, out)
				return
			}
		}
	})
	if built[what] != nil {
		t.Fatal(built[what])
	}
}

// needBinaries builds etcd, from the module's own dependencies, and ours.
func needBinaries(t *testing.T) {
	t.Helper()
	goBuild(t, "plain",
		[]string{"-o", filepath.Join(bin, "etcd"), "go.etcd.io/etcd/server/v3"},
		[]string{"-o", bin + "/", "../../cmd/assigner", "../../cmd/distributor", "../../cmd/backupdist", "../../cmd/slicerctl", "./actor"})
}

// needSabotage builds slicelets that can be told to ignore their deadline.
func needSabotage(t *testing.T) {
	t.Helper()
	goBuild(t, "sabotage",
		[]string{"-tags", "sabotage", "-o", filepath.Join(bin, "actor-sabotage"), "./actor"},
		[]string{"-tags", "sabotage", "-o", filepath.Join(bin, "assigner-sabotage"), "../../cmd/assigner"})
}

// process is a real process, with the end of what it says kept for when a test fails.
type process struct {
	t    *testing.T
	name string
	argv []string
	env  []string
	log  *ring
	dead bool // killed and not started again

	cmd  *exec.Cmd
	done chan struct{}
}

// start runs argv until the test ends or somebody kills it.
func start(t *testing.T, name string, env []string, argv ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, argv: argv, env: env, log: &ring{limit: 32 << 10}}
	p.run()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("---- last words of %s\n%s", p.name, p.log)
		}
	})
	return p
}

func (p *process) run() {
	p.t.Helper()
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	// A test that dies must not leave processes behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done, p.dead = cmd, done, false
	go func() { _ = cmd.Wait(); close(done) }()
}

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %s: %v", p.name, err)
	}
}

// kill is SIGKILL, and waits until the process is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
	p.dead = true
}

// end is SIGTERM, and waits until the process has ended by itself.
func (p *process) end(limit time.Duration) {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
		if !p.cmd.ProcessState.Success() {
			p.t.Errorf("%s: %s", p.name, p.cmd.ProcessState)
		}
	case <-time.After(limit):
		p.t.Errorf("%s does not end", p.name)
		p.kill()
	}
	p.dead = true
}

// restart runs a killed process again, with the same arguments.
func (p *process) restart() {
	p.t.Helper()
	p.run()
}

// ended says whether it ended though nobody killed it.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return !p.dead
	default:
		return false
	}
}

// ring keeps the end of what is written to it.
type ring struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	limit int
}

func (r *ring) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buf.Write(b)
	if n := r.buf.Len() - r.limit; n > 0 {
		r.buf.Next(n)
	}
	return len(b), nil
}

func (r *ring) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

// eventually polls until f returns nil, and returns how long that took.
func eventually(t *testing.T, limit time.Duration, what string, f func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	var err error
	for time.Since(begin) < limit {
		if err = f(); err == nil {
			return time.Since(begin)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s: not within %s: %v", what, limit, err)
	return 0
}
