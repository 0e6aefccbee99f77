package pebblestore

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/storetest"
)

// TestHangingDisk: a write that the disk holds up ends with its ctx, readers are
// not held up and do not see it, and when the disk goes on it is there.
func TestHangingDisk(t *testing.T) {
	ctx := t.Context()
	var hang atomic.Bool
	hanging, goOn := make(chan struct{}), make(chan struct{})
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".log") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && hang.CompareAndSwap(true, false) {
			close(hanging)
			<-goOn
		}
		return nil
	}))
	s, err := Open("store", Config{fs: fs})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.PutJob(ctx, assignment.JobConfig{Name: "a"}, store.NoVersion); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	first := storetest.First("a", s.ID(), 1, 3, 10)
	if err := s.Write(ctx, first); err != nil {
		t.Fatal(err)
	}
	next := storetest.Next(first, 2, .1, "x", rng)
	hang.Store(true)
	impatient, cancel := context.WithCancel(ctx)
	written := make(chan error)
	go func() { written <- s.Write(impatient, next) }()
	<-hanging
	if err := (held{true, first}).check(ctx, s); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-written; !errors.Is(err, context.Canceled) {
		t.Errorf("write: %v", err)
	}
	// What needs the disk, or the job, waits for no longer than it may, and what has no
	// time left as it begins fails alike.
	for _, may := range []time.Duration{0, time.Millisecond} {
		brief, cancel := context.WithTimeout(ctx, may)
		if err := s.Write(brief, next); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("write within %v: %v", may, err)
		}
		cancel()
	}
	if err := (held{true, first}).check(ctx, s); err != nil {
		t.Error(err)
	}
	close(goOn)
	var conflict *store.ConflictError
	if err := s.Write(ctx, storetest.Next(first, 3, .1, "y", rng)); !errors.As(err, &conflict) || conflict.Current != 2 {
		t.Errorf("write beside the one that hung: %v", err)
	}
	if err := (held{true, next}).check(ctx, s); err != nil {
		t.Error(err)
	}
}
