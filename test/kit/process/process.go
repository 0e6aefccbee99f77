// Package process is what tests with real processes share: programs that are
// built from this module when a test first wants them, processes that are killed,
// stopped and started again, and an etcd of several members.
package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/porttest"
)

// logLimit is how much of what a process says is kept.
const logLimit = 64 << 10

// Process is a real process, with the end of what it says kept for when a test
// fails. One goroutine at a time may use it.
type Process struct {
	Name string
	// Dead says that it was killed or ended, and not started again.
	Dead bool
	// In and Out are its standard input and output, if StartPiped started it.
	In  io.WriteCloser
	Out io.ReadCloser

	t         testing.TB
	argv, env []string
	log       *ring
	cmd       *exec.Cmd
	done      chan struct{}
}

// Start runs argv until the test ends or Kill is called. env is added to the test's own
// environment.
func Start(t testing.TB, name string, env []string, argv ...string) *Process {
	t.Helper()
	return start(t, name, env, false, argv)
}

// StartPiped is Start for a process that the test talks with.
func StartPiped(t testing.TB, name string, env []string, argv ...string) *Process {
	t.Helper()
	return start(t, name, env, true, argv)
}

func start(t testing.TB, name string, env []string, pipes bool, argv []string) *Process {
	t.Helper()
	p := &Process{Name: name, t: t, argv: argv, env: env, log: &ring{limit: logLimit}}
	p.run(pipes)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("---- last words of %s\n%s", p.Name, p.log)
		}
	})
	return p
}

func (p *Process) run(pipes bool) {
	p.t.Helper()
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stderr = p.log
	// A test that dies must not leave processes behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if pipes {
		if p.In, err = cmd.StdinPipe(); err == nil {
			p.Out, err = cmd.StdoutPipe()
		}
	} else {
		cmd.Stdout = p.log
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatalf("start %s: %v", p.Name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done, p.Dead = cmd, done, false
	go func() {
		defer close(done)
		if pipes { // Wait would close Out before all of it is read
			cmd.ProcessState, _ = cmd.Process.Wait()
		} else {
			_ = cmd.Wait()
		}
	}()
}

// Signal sends a signal; a process that is gone is none the worse.
func (p *Process) Signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %s: %v", p.Name, err)
	}
}

// Pid is the number of the process that runs, or ran last.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Stop is SIGSTOP, and Continue SIGCONT.
func (p *Process) Stop() { p.Signal(syscall.SIGSTOP) }

// Continue ends a Stop.
func (p *Process) Continue() { p.Signal(syscall.SIGCONT) }

// Kill is SIGKILL, and waits until the process is gone.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
	p.Dead = true
}

// End is SIGTERM, and waits until the process has ended by itself. The test fails
// if it does not within the limit, or not well.
func (p *Process) End(limit time.Duration) {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		if !p.cmd.ProcessState.Success() {
			p.t.Errorf("%s: %s", p.Name, p.cmd.ProcessState)
		}
	case <-time.After(limit):
		p.t.Errorf("%s does not end", p.Name)
		p.Kill()
	}
	p.Dead = true
}

// Restart runs it again with the same arguments, after killing it if it is not
// dead. It has no pipes then.
func (p *Process) Restart() {
	p.t.Helper()
	p.Kill()
	p.run(false)
}

// Done is closed when the process is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether it ended though it was not killed.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return !p.Dead
	default:
		return false
	}
}

// State is how it ended.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// LastWords is the end of what it said.
func (p *Process) LastWords() string { return p.log.String() }

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

// FreePorts returns loopback addresses that were free a moment ago, for processes that
// are to have the same ones when they are started again.
func FreePorts(t testing.TB, n int) []string {
	t.Helper()
	addrs, err := porttest.Free(n)
	if err != nil {
		t.Fatal(err)
	}
	return addrs
}

// Eventually polls until f returns nil, and returns how long that took. The test
// ends if it takes longer than the limit.
func Eventually(t testing.TB, limit time.Duration, what string, f func() error) time.Duration {
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
