//go:build system

package firsthour

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// within bounds the page as a whole; nothing is asserted on it.
const within = 10 * time.Minute

// TestFirstHour runs the page as it stands, by one shell, with a home folder and a network of
// its own. It needs root, for the network, and ip.
func TestFirstHour(t *testing.T) {
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := steps(string(page))
	if err != nil {
		t.Fatal(err)
	}
	sh := newShell(t)
	sh.run("exec 2>&1; set -euo pipefail; ip link set lo up\n")
	began := time.Now()
	for _, s := range all {
		from := time.Now()
		printed, ended := sh.run(s.commands)
		first, _, _ := strings.Cut(s.commands, "\n")
		t.Logf("%6.1f s  line %d: %s", time.Since(from).Seconds(), s.line, first)
		if ended {
			t.Fatalf("line %d: a command failed:\n%s\n%s", s.line, s.commands, printed)
		}
		if line, ok := s.missing(printed); !ok {
			t.Fatalf("line %d: it did not print\n  %s\nbut\n%s", s.line, line, printed)
		}
	}
	t.Logf("%6.1f s  the whole page", time.Since(began).Seconds())
}

// shell is a bash that runs what it is given, and all that it starts.
type shell struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
	n   int
}

func newShell(t *testing.T) *shell {
	home := t.TempDir()
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + home}
	// The home folder is new; what Go has built and fetched need not be.
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOFLAGS"} {
		v, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(v)))
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	cmd := exec.CommandContext(ctx, "bash", "-s")
	cmd.Dir, cmd.Env = root, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = in.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // and all that it has started
		_ = cmd.Wait()
	})
	return &shell{t: t, in: in, out: bufio.NewScanner(out)}
}

// run returns what the commands print, and whether the shell has ended, as it does when
// one fails.
func (s *shell) run(commands string) (printed string, ended bool) {
	s.n++
	mark := fmt.Sprintf("end of step %d", s.n)
	if _, err := fmt.Fprintf(s.in, "%s\necho\necho %s\n", commands, mark); err != nil {
		s.t.Fatal(err)
	}
	var b strings.Builder
	for s.out.Scan() {
		if s.out.Text() == mark {
			return b.String(), false
		}
		b.WriteString(s.out.Text() + "\n")
	}
	return b.String(), true
}
