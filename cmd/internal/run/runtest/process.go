package runtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

// programEnv makes the test binary one of the programs: a real process with real signals,
// without building it first.
const programEnv = "SLICER_TEST_PROGRAM"

// Main is for a TestMain: it runs the tests, parallel ones side by side, or the program that this process was
// started as.
func Main(m *testing.M, programs map[string]func() *cobra.Command) {
	if program := programs[os.Getenv(programEnv)]; program != nil {
		os.Exit(run.Main(program()))
	}
	os.Setenv("XDG_CONFIG_HOME", "/nonexistent") // slicerctl's contexts there are the developer's
	waittest.SideBySide()
	goleak.VerifyTestMain(m)
}

// Limit bounds every wait; nothing is asserted on it.
const Limit = waittest.Patience

// Process is a program that runs, with its log.
type Process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}
	err  error

	mu      sync.Mutex
	log     bytes.Buffer
	serving chan map[string]string // the log line that says where
}

// Start runs one of the programs given to Main in a process of its own, until the
// test is over.
func Start(t *testing.T, program string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.Command(os.Args[0], append(args, "--log-format=json")...), done: make(chan struct{}), serving: make(chan map[string]string, 1)}
	p.cmd.Env = append(os.Environ(), programEnv+"="+program)
	errs, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(errs)
		for lines.Scan() {
			p.mu.Lock()
			p.log.WriteString(lines.Text() + "\n")
			p.mu.Unlock()
			var m map[string]any
			if json.Unmarshal(lines.Bytes(), &m) == nil && m["msg"] == "serving" {
				where := map[string]string{}
				for k, v := range m {
					if s, ok := v.(string); ok {
						where[k] = s
					}
				}
				p.serving <- where
			}
		}
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

// Text is its log so far.
func (p *Process) Text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Where waits until the process serves and returns where.
func (p *Process) Where() map[string]string {
	p.t.Helper()
	select {
	case w := <-p.serving:
		return w
	case <-p.done:
		p.t.Fatalf("it ended: %v\n%s", p.err, p.Text())
	case <-time.After(Limit):
		p.t.Fatalf("it does not serve\n%s", p.Text())
	}
	return nil
}

// Serves waits until the process serves or has ended, and reports whether it serves.
func (p *Process) Serves() bool {
	p.t.Helper()
	select {
	case <-p.serving:
		return true
	case <-p.done:
		return false
	case <-time.After(Limit):
		p.t.Fatalf("it neither serves nor ends\n%s", p.Text())
		return false
	}
}

// End waits for the end and returns the exit code.
func (p *Process) End() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(Limit):
		p.t.Fatalf("it does not end\n%s", p.Text())
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// Signal sends it a signal.
func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// Stop ends it by a signal and wants an orderly end.
func (p *Process) Stop(sig syscall.Signal) {
	p.t.Helper()
	p.Signal(sig)
	if code := p.End(); code != 0 {
		p.t.Errorf("%s: exit %d\n%s", sig, code, p.Text())
	}
}

// Execute runs a program within the test, and returns its exit code and what it printed.
func Execute(program *cobra.Command, args ...string) (code int, out, errs string) {
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	var o, e bytes.Buffer
	code = run.Execute(ctx, program, args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}
