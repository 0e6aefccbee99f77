package pebblestore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	"golang.org/x/sys/unix"
)

// What a child ends with.
const (
	exitDone   = 0
	exitFailed = 3 // the store failed, cleanly
	exitOpen   = 4 // it could not be opened, cleanly
	exitWrong  = 5
)

// TestMain is also the main of the processes that are killed, or whose disk
// fails: they write to a store, and print each generation that is acknowledged.
func TestMain(m *testing.M) {
	if dir := os.Getenv("PEBBLESTORE_CHILD"); dir != "" {
		code, err := child(dir, os.Getenv("PEBBLESTORE_FAULT"))
		if err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
		}
		os.Exit(code)
	}
	verify(m)
}

func child(dir, fault string) (int, error) {
	ctx := context.Background()
	cfg, err := faultyDisk(fault)
	if err != nil {
		return exitWrong, err
	}
	s, err := Open(dir, cfg)
	if err != nil {
		return exitOpen, err
	}
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	if _, err := s.PutJob(ctx, assignment.JobConfig{Name: "a"}, store.AnyVersion); err != nil {
		return failed(s, err)
	}
	a, err := s.Read(ctx, "a")
	switch {
	case errors.Is(err, store.ErrNotFound):
		a = storetest.First("a", s.ID(), 1, 5, 3000)
		err = s.Write(ctx, a)
	case err == nil:
	}
	// Without a fault it goes on until it is killed, however late that is.
	for i := 0; err == nil && (i < 200 || fault == ""); i++ {
		fmt.Println(a.Generation(), a.Checksum())
		next := storetest.Next(a, a.Generation()+1, .05, fmt.Sprint(os.Getpid()), rng)
		if i%10 == 9 { // fills memory tables
			next = storetest.Shuffled(a, a.Generation()+1, rng)
		}
		err = s.Write(ctx, next)
		a = next
	}
	if err != nil {
		return failed(s, err)
	}
	return exitDone, s.Close()
}

// failed checks that a store has failed as it should.
func failed(s *Store, err error) (int, error) {
	<-s.Failed()
	_, again := s.Read(context.Background(), "a")
	for _, err := range []error{err, again, s.Err(), s.Close()} {
		if !errors.Is(err, store.ErrUnavailable) {
			return exitWrong, fmt.Errorf("error %w, want one that is %w", err, store.ErrUnavailable)
		}
	}
	return exitFailed, err
}

// faultyDisk makes the disk fail: "full:N" at every write from the Nth, "once:N"
// at the Nth alone, "size:N" when a file grows beyond N bytes.
func faultyDisk(fault string) (cfg Config, err error) {
	kind, number, _ := strings.Cut(fault, ":")
	n, _ := strconv.ParseInt(number, 10, 64)
	var count atomic.Int64
	switch kind {
	case "full", "once":
		cfg.fs = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
				return nil
			}
			switch c := count.Add(1); {
			case kind == "full" && c >= n:
				return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
			case kind == "once" && c == n:
				return &os.PathError{Op: "write", Path: op.Path, Err: syscall.EIO}
			}
			return nil
		}))
	case "size":
		signal.Ignore(syscall.SIGXFSZ)
		err = unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(n), Max: uint64(n)})
	}
	return cfg, err
}

// process is a child.
type process struct {
	cmd    *exec.Cmd
	out    io.Reader
	stderr bytes.Buffer
}

func start(t *testing.T, dir, fault string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(t.Context(), os.Args[0])}
	p.cmd.Env = append(os.Environ(), "PEBBLESTORE_CHILD="+dir, "PEBBLESTORE_FAULT="+fault)
	p.cmd.Stderr = &p.stderr
	var err error
	if p.out, err = p.cmd.StdoutPipe(); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wait reads what was acknowledged, kills the process after so many lines (0:
// never), and returns how it ended.
func (p *process) wait(t *testing.T, acked map[assignment.Generation]uint64, kill int) int {
	t.Helper()
	in := bufio.NewReader(p.out)
	for n := 1; ; n++ {
		line, err := in.ReadString('\n')
		if err != nil {
			break // the last line may be cut
		}
		var g assignment.Generation
		var sum uint64
		if _, err := fmt.Sscan(line, &g, &sum); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if before, ok := acked[g]; ok && before != sum {
			t.Errorf("generation %d changed", g)
		}
		acked[g] = sum
		if n == kill {
			_ = p.cmd.Process.Kill()
		}
	}
	_ = p.cmd.Wait()
	if out := p.stderr.String(); strings.Contains(out, "panic") || strings.Contains(out, "goroutine ") {
		t.Errorf("it ended with\n%s", out)
	}
	return p.cmd.ProcessState.ExitCode()
}

// holds checks that a directory holds all that was acknowledged.
func holds(t *testing.T, dir string, acked map[assignment.Generation]uint64) {
	t.Helper()
	s, err := Open(dir, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var last assignment.Generation
	for g := range acked {
		last = max(last, g)
	}
	a, err := s.Read(t.Context(), "a")
	if len(acked) == 0 && errors.Is(err, store.ErrNotFound) {
		return
	}
	if err != nil || a.Generation() < last || a.Generation() > last+1 {
		t.Fatalf("%v, %v; generation %d was acknowledged", a, err, last)
	}
	for g := last; g > max(last-63, 0); g-- {
		a, err := s.ReadGeneration(t.Context(), "a", g)
		if err != nil {
			t.Fatal(err)
		}
		if a.Checksum() != acked[g] {
			t.Errorf("generation %d has checksum %016x, acknowledged was %016x", g, a.Checksum(), acked[g])
		}
	}
}

func TestKill9(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	seed := seedtest.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	acked := make(map[assignment.Generation]uint64)
	for range seedtest.Cases(8) {
		if code := start(t, dir, "").wait(t, acked, 1+rng.IntN(60)); code != -1 {
			t.Errorf("exit code %d, it was to be killed", code)
		}
		holds(t, dir, acked)
	}
	t.Logf("%d generations acknowledged", len(acked))
}

// TestFaultyDisk lets the disk fail at one write or another: the process ends
// cleanly, and nothing acknowledged is lost.
func TestFaultyDisk(t *testing.T) {
	t.Parallel()
	faults := []string{"size:4096", "size:40000", "size:150000"}
	for i := 1; i < seedtest.Cases(400); i += 5 + i/2 {
		faults = append(faults, fmt.Sprintf("full:%d", i), fmt.Sprintf("once:%d", i+1))
	}
	codes := make(map[int]int)
	for _, fault := range faults {
		dir := t.TempDir()
		acked := make(map[assignment.Generation]uint64)
		p := start(t, dir, fault)
		code := p.wait(t, acked, 0)
		if code == exitWrong || code < 0 || code == exitDone && !strings.HasPrefix(fault, "once") {
			t.Errorf("%s: exit code %d: %s", fault, code, p.stderr.String())
		}
		codes[code]++
		holds(t, dir, acked)
	}
	t.Logf("exit codes %v", codes)
	if codes[exitFailed] == 0 || codes[exitOpen] == 0 {
		t.Error("want some that failed at work and some that failed to open")
	}
}
