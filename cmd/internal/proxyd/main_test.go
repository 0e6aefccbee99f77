package proxyd_test

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

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/cmd/internal/proxyd"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

// programEnv has the test binary be slicerproxy instead: a real process with real
// signals, without building it first.
const programEnv = "SLICER_TEST_PROXY"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		os.Exit(run.Main(proxyd.Command()))
	}
	goleak.VerifyTestMain(m)
}

// limit bounds every wait; nothing is asserted on it.
const limit = 30 * time.Second

// process is slicerproxy, with its log.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}
	err  error

	mu      sync.Mutex
	log     bytes.Buffer
	serving chan map[string]string // the log line that says where
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], append(args, "--log-format=json")...), done: make(chan struct{}), serving: make(chan map[string]string, 1)}
	p.cmd.Env = append(os.Environ(), programEnv+"=1")
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

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// where waits until the process serves and returns where.
func (p *process) where() map[string]string {
	p.t.Helper()
	select {
	case w := <-p.serving:
		return w
	case <-p.done:
		p.t.Fatalf("it ended: %v\n%s", p.err, p.text())
	case <-time.After(limit):
		p.t.Fatalf("it does not serve\n%s", p.text())
	}
	return nil
}

// end waits for the end and returns the exit code.
func (p *process) end() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("it does not end\n%s", p.text())
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// execute runs the program within the test and returns exit code and outputs.
func execute(args ...string) (code int, out, errs string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var o, e bytes.Buffer
	code = run.Execute(ctx, proxyd.Command(), args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// eventually waits for something to be so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("in vain: " + what)
		}
	}
}
