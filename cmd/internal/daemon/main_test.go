package daemon_test

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

	"github.com/slicer-project/slicer/cmd/internal/assignerd"
	"github.com/slicer-project/slicer/cmd/internal/backupd"
	"github.com/slicer-project/slicer/cmd/internal/distributord"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/serve"
)

// programEnv has the test binary be one of the programs instead: a real process
// with real signals, without building it first.
const programEnv = "SLICER_TEST_PROGRAM"

var programs = map[string]func() *cobra.Command{
	"assigner": assignerd.Command, "distributor": distributord.Command, "backupdist": backupd.Command, "serve": serve.Command,
}

func TestMain(m *testing.M) {
	if program := programs[os.Getenv(programEnv)]; program != nil {
		os.Exit(run.Main(program()))
	}
	goleak.VerifyTestMain(m)
}

// limit bounds every wait; nothing is asserted on it.
const limit = 30 * time.Second

// process is a program that runs, with its log.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}
	err  error

	mu      sync.Mutex
	log     bytes.Buffer
	serving chan map[string]string // the log line that says where
}

func start(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], append(args, "--log-format=json")...), done: make(chan struct{}), serving: make(chan map[string]string, 1)}
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

// stop ends it by a signal and wants an orderly end.
func (p *process) stop(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
	if code := p.end(); code != 0 {
		p.t.Errorf("%s: exit %d\n%s", sig, code, p.text())
	}
}

// execute runs a program within the test and returns exit code and errors.
func execute(program string, args ...string) (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out, errs bytes.Buffer
	code := run.Execute(ctx, programs[program](), args, strings.NewReader(""), &out, &errs)
	return code, errs.String()
}
