package crowdtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// Process is a process with many subscribers.
type Process struct {
	in   io.WriteCloser
	out  *bufio.Reader
	stop func()
}

// Start starts a crowd of n that lasts until the test is over.
func Start(b testing.TB, kind, address string, n int) *Process {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", env, kind, n, address))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		in.Close()
		cmd.Wait()
	})
	b.Cleanup(stop)
	return &Process{in, bufio.NewReader(out), stop}
}

// Stop ends the crowd, before the test does.
func (c *Process) Stop() { c.stop() }

// ask says a line to the crowd and reads what it answers into values.
func (c *Process) ask(b testing.TB, question string, values ...any) {
	b.Helper()
	if _, err := fmt.Fprintln(c.in, question); err != nil {
		b.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	if err == nil && len(values) > 0 {
		_, err = fmt.Sscan(line, values...)
	}
	if err != nil {
		b.Fatalf("the crowd says %q: %v", line, err)
	}
}

// Become has the crowd, of kind Slicer or AtOnce, be of the other kind or the same from
// here on.
func (c *Process) Become(b testing.TB, kind string) {
	b.Helper()
	c.ask(b, kind)
}

// Until waits until all of the crowd have seen a checksum.
func (c *Process) Until(b testing.TB, sum uint64) {
	b.Helper()
	var got uint64
	if c.ask(b, fmt.Sprint("until ", sum), &got); got != sum {
		b.Fatalf("the crowd waited for %d", got)
	}
}

// Spread is how long after a moment a checksum, or the other, was seen by the subscribers
// that had seen one before by then: how many these are, half of them, 99 %, and the last.
func (c *Process) Spread(b testing.TB, sum, or, before uint64, since time.Time) (n int, p50, p99, last time.Duration) {
	b.Helper()
	var at [3]int64
	c.ask(b, fmt.Sprint("spread ", sum, " ", or, " ", before, " ", since.UnixNano()), &n, &at[0], &at[1], &at[2])
	return n, time.Duration(at[0]), time.Duration(at[1]), time.Duration(at[2])
}

// Counts are of streams and of attempts at one.
type Counts struct {
	Lost     int // had been served, and have ended
	SentAway int // were told to come back later
	TimedOut int // had no connection within the time that a subscriber waits
}

// Counts are those since the crowd was started.
func (c *Process) Counts(b testing.TB) (n Counts) {
	b.Helper()
	c.ask(b, "counts", &n.Lost, &n.SentAway, &n.TimedOut)
	return n
}

// CPU is the CPU time that the crowd has used, system calls included.
func (c *Process) CPU(b testing.TB) time.Duration {
	b.Helper()
	var ns int64
	c.ask(b, "cpu", &ns)
	return time.Duration(ns)
}
