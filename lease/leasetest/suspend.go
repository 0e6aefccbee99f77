package leasetest

import (
	"errors"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
)

// suspended closes the store while one reader holds the guard, two more want it and
// an assigner is about to change it.
func (f *fixture) suspended() {
	for _, d := range []time.Duration{0, lease.MinTTL - 1, lease.MaxTTL + 1} {
		if err := f.Suspender.Suspend(f.ctx, d); err == nil {
			f.t.Errorf("the store was suspended for %s", d)
		}
	}
	f.boot(1)
	holds, wants := f.reader(), f.reader()
	f.acquire(holds, lease.GuardClaim(1), true)
	wanted := assignment.Generation(2)
	start, known := whileSuspended(f, wants, wanted)
	for ; !known; start, known = whileSuspended(f, wants, wanted) {
		f.release(wants, lease.GuardClaim(1))
		if f.state().Head == wanted {
			wanted++
		}
	}
	if n := f.state().GuardReaders; n != 1 {
		f.t.Errorf("%d readers of a guard that is held, want 1", n)
	}
	f.release(holds, lease.GuardClaim(1))
	live := f.join(0, 1)
	f.eventually("the guard is granted again", func() bool {
		_, ok, err := wants.Acquire(f.ctx, f.job, lease.GuardClaim(1))
		return err == nil && ok
	})
	if took := time.Since(start); took < f.TTL {
		f.t.Errorf("suspended for %s, the store grants again after %s", f.TTL, took)
	}
	f.release(wants, lease.GuardClaim(1))
	f.eventually("a reader that has waited believes", func() bool { return all([]*lease.Job{live}, 1) })
	f.advance(wanted)
}

// whileSuspended suspends the store, and checks that it grants nothing and changes nothing.
// It is false if that took until the suspension may have been over, and something was.
func whileSuspended(f *fixture, wants lease.ReadSession, wanted assignment.Generation) (start time.Time, known bool) {
	f.t.Helper()
	start = time.Now()
	if err := f.Suspender.Suspend(f.ctx, f.TTL); err != nil {
		f.t.Fatalf("Suspend: %v", err)
	}
	if err := f.Suspender.Suspend(f.ctx, lease.MinTTL); err != nil {
		f.t.Fatalf("Suspend once more: %v", err)
	}
	for what, try := range map[string]func() error{
		"Acquire": func() error {
			_, ok, err := wants.Acquire(f.ctx, f.job, lease.GuardClaim(1))
			if ok {
				err = errors.New("the guard is granted")
			}
			return err
		},
		"a step": func() error { return f.commit(lease.Write, wanted) },
	} {
		err := try()
		switch refused := errors.Is(err, lease.ErrSuspended); {
		case !refused && time.Since(start) < f.TTL:
			f.t.Errorf("%s while the store is suspended: %v, want %v", what, err, lease.ErrSuspended)
		case !refused:
			return start, false
		}
	}
	return start, true
}
