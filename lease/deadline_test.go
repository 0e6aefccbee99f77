package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/lease"
)

// far is a store whose answers to opening and renewing are on their way for a
// while: what was asked for was carried out when it was asked.
type far struct {
	lease.Readers
	way    atomic.Int64 // of an answer
	silent atomic.Bool  // renewals are lost
	gone   atomic.Bool  // the lease is, and there is no other
	asked  atomic.Int64 // when what was answered last was asked for, in nanoseconds since start
	start  time.Time
}

func (f *far) answer(asked time.Duration) {
	time.Sleep(time.Duration(f.way.Load()))
	f.asked.Store(int64(asked))
}

func (f *far) OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (lease.ReadSession, error) {
	if f.gone.Load() {
		return nil, errCut
	}
	asked := time.Since(f.start)
	s, err := f.Readers.OpenReader(ctx, ttl, jobs...)
	f.answer(asked)
	return &farSession{s, f}, err
}

type farSession struct {
	lease.ReadSession
	f *far
}

func (s *farSession) KeepAlive(ctx context.Context) error {
	switch {
	case s.f.gone.Load():
		return lease.ErrLost
	case s.f.silent.Load():
		return errCut
	}
	asked := time.Since(s.f.start)
	err := s.ReadSession.KeepAlive(ctx)
	s.f.answer(asked)
	return err
}

// ends checks that belief lasts until exactly the lease time after the last
// question that was answered, less the margin: one that counted from the answer, or
// left the margin out, would go on for longer.
func (f *far) ends(t *testing.T, v *world, margin time.Duration) {
	t.Helper()
	end := time.Duration(f.asked.Load()) + ttl - margin
	time.Sleep(end - time.Since(f.start) - time.Millisecond)
	synctest.Wait()
	if v.job.Belief() == nil {
		t.Errorf("belief has ended %s before %s", time.Millisecond, end)
	}
	time.Sleep(time.Millisecond)
	if v.job.Belief() != nil {
		t.Errorf("at %s, %s after it was asked for, the lease is still believed in", time.Since(f.start), time.Since(f.start)-time.Duration(f.asked.Load()))
	}
}

func newFar(t *testing.T, way time.Duration) (*world, *far) {
	f := &far{start: time.Now()}
	f.way.Store(int64(way))
	v := newWorldOf(t, func(r lease.Readers) lease.Readers {
		f.Readers = r
		return f
	})
	return v, f
}

func TestDeadlineCountsFromTheOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, f := newFar(t, 2*time.Second)
		f.silent.Store(true)
		v.advance(1)
		f.ends(t, v, ttl/10)
		v.close()
	})
}

func TestDeadlineCountsFromTheRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, f := newFar(t, time.Second)
		v.advance(1)
		time.Sleep(20 * time.Second)
		f.silent.Store(true)
		time.Sleep(time.Second) // what is on its way arrives
		f.ends(t, v, ttl/10)
		v.close()
	})
}

// A lease that the store says is gone is believed in no more, however far its
// deadline is.
func TestLostLeaseEndsBeliefAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, f := newFar(t, 0)
		v.advance(1)
		v.wantTold("guard 1")
		f.gone.Store(true)
		time.Sleep(ttl / 3) // until the next renewal
		v.wantTold("nothing")
		v.close()
	})
}

// A store that has lost a lease before its time may have gone back to an earlier
// state, which others do not know yet: no session is opened until theirs are over.
func TestRestAfterALeaseLostEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, f := newFar(t, 0)
		v.advance(1)
		v.wantTold("guard 1")
		f.gone.Store(true)
		for v.job.Belief() != nil {
			time.Sleep(10 * time.Millisecond)
		}
		lost := time.Now()
		f.gone.Store(false)
		for v.job.Belief() == nil && time.Since(lost) < 2*ttl {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(lost); took < ttl-20*time.Millisecond || took > ttl+time.Second {
			t.Errorf("it believes again after %s, the lease time is %s", took, ttl)
		}
		v.close()
	})
}
