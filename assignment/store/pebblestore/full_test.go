package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/waittest"
)

// limit bounds every wait; nothing is asserted on it.
const limit = waittest.Patience

// unflushed is the disk of a store whose process has died: what it wrote last is
// in its log alone, and the next one to open it writes that into a table.
func unflushed(t *testing.T) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewCrashableMem()
	s, err := Open("store", Config{fs: disk})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := s.PutJob(t.Context(), assignment.JobConfig{Name: fmt.Sprint("job", i)}, store.NoVersion); err != nil {
			t.Fatal(err)
		}
	}
	dead := disk.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dead
}

// opening opens a store beside the caller.
func opening(ctx context.Context, cfg Config) <-chan error {
	done := make(chan error, 1)
	go func() {
		s, err := OpenContext(ctx, "store", cfg)
		if err == nil {
			err = s.Close()
		}
		done <- err
	}()
	return done
}

func within(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		t.Fatal("the store is still being opened")
		return nil
	}
}

// TestFullAtStart opens a store on a disk that has room for nothing of one kind: it
// ends, with the directory and the cause. With room again nothing is lost. (After
// what Pebble calls fatal, as when there is no room for a MANIFEST, only the process's
// end frees the directory: the system test of package daemon does that.)
func TestFullAtStart(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"*.sst", witnessName} {
		var full atomic.Bool
		disk := unflushed(t)
		fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			match, err := filepath.Match(file, disk.PathBase(op.Path))
			if err != nil {
				return err
			}
			if match && full.Load() && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileWriteAt) {
				return syscall.ENOSPC
			}
			return nil
		}))
		full.Store(true)
		err := within(t, opening(t.Context(), Config{fs: fs}))
		if err == nil || !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), "open store directory store: ") {
			t.Errorf("no room for %s: %v", file, err)
		}
		full.Store(false)
		free(t, fs)
		s, err := Open("store", Config{fs: fs})
		if err != nil {
			t.Fatal(err)
		}
		if jobs, err := s.ListJobs(t.Context()); err != nil || len(jobs) != 20 {
			t.Errorf("with room for %s again: %d jobs, %v", file, len(jobs), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// free waits until the store can be opened.
func free(t *testing.T, fs vfs.FS) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		err := within(t, opening(t.Context(), Config{fs: fs}))
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the directory is never free: %v", err)
		}
	}
}

// TestOpenEnds: a disk that does not answer keeps no caller longer than its context.
func TestOpenEnds(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpMkdirAll, errorfs.OpLock, errorfs.OpCreate} {
		hanging, goOn := make(chan struct{}), make(chan struct{})
		var once atomic.Bool
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == kind && once.CompareAndSwap(false, true) {
				close(hanging)
				<-goOn
			}
			return nil
		}))
		ctx, cancel := context.WithCancel(t.Context())
		done := opening(ctx, Config{fs: fs})
		<-hanging
		cancel()
		if err := within(t, done); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "open store directory store: ") {
			t.Errorf("%v: %v", kind, err)
		}
		close(goOn)
		free(t, fs) // what is opened after all is closed
	}
}

// narrow is a disk of which so many bytes are free.
type narrow struct {
	vfs.FS
	free uint64
}

func (n *narrow) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: n.free}, nil
}

// TestNoRoomToOpen: a disk that has no room for what opening writes is found before anything
// is written, and what is in the directory stays as it is.
func TestNoRoomToOpen(t *testing.T) {
	t.Parallel()
	fs := &narrow{FS: unflushed(t), free: openRoom}
	before, err := fs.List("store")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Open("store", Config{fs: fs}); !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), "open store directory store: no space left on device: opening it takes up to ") {
		t.Errorf("%d bytes are free: %v", fs.free, err)
	}
	if after, err := fs.List("store"); err != nil || len(after) != len(before) {
		t.Errorf("it has %q, %v: want %q", after, err, before)
	}
	fs.free = 2 * openRoom
	s, err := Open("store", Config{fs: fs})
	if err != nil {
		t.Fatal(err)
	}
	if jobs, err := s.ListJobs(t.Context()); err != nil || len(jobs) != 20 {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
