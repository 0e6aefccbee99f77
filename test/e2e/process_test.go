package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binaries built once, by TestMain.
var bin string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(appMain(role))
	}
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "slicer-e2e-bin-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	bin = dir
	for _, args := range [][]string{
		{"build", "-o", filepath.Join(dir, "etcd"), "go.etcd.io/etcd/server/v3"},
		{"build", "-o", dir + "/", "../../cmd/assigner", "../../cmd/distributor", "../../cmd/backupdist", "../../cmd/slicerctl"},
	} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return 1, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return m.Run(), nil
}

// process is one real process, with a log kept in memory for when a test fails.
type process struct {
	t    testing.TB
	name string
	argv []string
	env  []string
	log  *ring

	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser // stdout, when wanted
	done chan struct{}
}

// start runs argv until the test ends or somebody kills it.
func start(t testing.TB, name string, env []string, pipes bool, argv ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, argv: argv, env: env, log: &ring{limit: 64 << 10}}
	p.run(pipes)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("---- last words of %s\n%s", p.name, p.log)
		}
	})
	return p
}

func (p *process) run(pipes bool) {
	p.t.Helper()
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stderr = p.log
	// A test that dies must not leave processes behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if pipes {
		if p.in, err = cmd.StdinPipe(); err == nil {
			p.out, err = cmd.StdoutPipe()
		}
	} else {
		cmd.Stdout = p.log
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	if !pipes { // with pipes, whoever reads them waits
		go func() { _ = cmd.Wait(); close(done) }()
	} else {
		go func() { _, _ = cmd.Process.Wait(); close(done) }()
	}
}

// kill is SIGKILL, and waits until the process is gone.
func (p *process) kill() {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("kill %s: %v", p.name, err)
	}
	<-p.done
}

// restart runs a killed process again, with the same arguments.
func (p *process) restart() {
	p.t.Helper()
	p.kill()
	p.run(false)
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

// freePorts returns loopback addresses that were free a moment ago.
func freePorts(t testing.TB, n int) []string {
	t.Helper()
	addrs := make([]string, n)
	for i := range addrs {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs[i] = l.Addr().String()
	}
	return addrs
}

// eventually polls until f returns nil, and returns how long that took.
func eventually(t testing.TB, limit time.Duration, what string, f func() error) time.Duration {
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
