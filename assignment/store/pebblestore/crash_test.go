package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	"github.com/slicer-project/slicer/assignment/waittest"
)

// held is what a store with one job holds.
type held struct {
	job    bool
	newest *assignment.Assignment
}

// check says how s differs from what it should hold.
func (want held) check(ctx context.Context, s store.Store) error {
	_, err := s.GetJob(ctx, "a")
	if got := !errors.Is(err, store.ErrNotFound); got != want.job || got && err != nil {
		return fmt.Errorf("job: %w, want it there: %v", err, want.job)
	}
	a, err := s.Read(ctx, "a")
	switch {
	case want.newest == nil && !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("read: %v, %w, want nothing", a, err)
	case want.newest == nil:
		return nil
	case err != nil:
		return fmt.Errorf("read: %w, want %v", err, want.newest)
	case !storetest.Same(a, want.newest):
		return fmt.Errorf("read: %v, want %v", a, want.newest)
	}
	return nil
}

// crash is a disk as it might have been left, and what it must hold: what was
// acknowledged, or that and what was being done.
type crash struct {
	fs           *vfs.MemFS
	at           string
	acked, doing held
}

// TestCrash kills the machine before every write to its disk, with what was not
// synced lost, or there, or torn.
func TestCrash(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	seed := seedtest.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	torn := rand.New(rand.NewPCG(seed, 2)) // under mu: Pebble writes in the background too
	disk := vfs.NewCrashableMem()
	var mu sync.Mutex
	var acked, doing held
	var crashes []crash
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		lost := []int{0, 100}
		if strings.HasSuffix(op.Path, ".log") && torn.IntN(4) == 0 {
			lost = append(lost, 50) // elsewhere Pebble trusts that directories keep their order
		}
		for _, percent := range lost {
			crashes = append(crashes, crash{disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: torn}), fmt.Sprintf("operation %d on %s", op.Kind, op.Path), acked, doing})
		}
		return nil
	}))
	open := func() *Store {
		s, err := Open("store", Config{Keep: 4, fs: fs, Timeout: waittest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	do := func(next held, f func() error) {
		t.Helper()
		mu.Lock()
		doing = next
		mu.Unlock()
		if err := f(); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		acked = next
		mu.Unlock()
	}
	put := func() error { _, err := s.PutJob(ctx, assignment.JobConfig{Name: "a"}, store.NoVersion); return err }
	write := func(a *assignment.Assignment) {
		t.Helper()
		do(held{true, a}, func() error { return s.Write(ctx, a) })
	}
	do(held{job: true}, put)
	write(storetest.First("a", s.ID(), 1, 5, 50))
	for range 8 {
		write(storetest.Next(acked.newest, acked.newest.Generation()+1, .1, "x", rng))
	}
	do(held{}, func() error { return s.DeleteJob(ctx, "a") })
	do(held{job: true}, put)
	write(storetest.First("a", s.ID(), 100, 5, 12_000))
	for i := range 10 {
		if i == 5 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open()
		}
		write(storetest.Shuffled(acked.newest, acked.newest.Generation()+1, rng))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d crashes", len(crashes))
	every := len(crashes) / seedtest.Cases(len(crashes))
	for i := 0; i < len(crashes); i += every {
		c := crashes[i]
		if err := c.recover(ctx, rng); err != nil {
			t.Errorf("crash %d, before %s: %v", i, c.at, err)
		}
	}
}

// recover opens the disk after the crash, looks, and writes on.
func (c *crash) recover(ctx context.Context, rng *rand.Rand) error {
	s, err := Open("store", Config{Keep: 4, fs: c.fs, Timeout: waittest.Patience})
	if err != nil {
		return err
	}
	defer s.Close()
	now := c.acked
	if err := now.check(ctx, s); err != nil {
		now = c.doing
		if also := now.check(ctx, s); also != nil {
			return errors.Join(err, also)
		}
	}
	if !now.job {
		_, err := s.PutJob(ctx, assignment.JobConfig{Name: "a"}, store.NoVersion)
		return err
	}
	next := storetest.First("a", s.ID(), 1000, 5, 50)
	if now.newest != nil {
		next = storetest.Next(now.newest, 1000, .1, "x", rng)
	}
	if err := s.Write(ctx, next); err != nil {
		return err
	}
	return held{true, next}.check(ctx, s)
}
