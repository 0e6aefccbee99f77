// Package leasetest holds the suite that every lease store passes, and what
// tests of consistent mode need: assignments by the number, and a job that is
// carried from one to the next.
//
//	func TestConformance(t *testing.T) {
//		leasetest.Run(t, func(t *testing.T) leasetest.Store {
//			st := open(t)
//			return leasetest.Store{Readers: st, Writers: st, Suspender: st, TTL: 2 * time.Second}
//		})
//	}
//
// Leases are real and time is, so the suite takes a few lease times; its tests run side by side.
// On a machine that is starved a process may not run for longer than a lease time: what is to
// last is renewed and has much more than that, and where a lease is to run out, the tests count
// only what happened before it may have. A store that bounds its calls by itself is asked again.
package leasetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/lease"
)

// Store is a lease store under test.
type Store struct {
	Readers lease.Readers
	Writers lease.Writers
	// Suspender is the same store's.
	Suspender lease.Suspender
	// TTL is a short lease time of whole seconds that the store keeps to: a session
	// that is not renewed is gone within twice that.
	TTL time.Duration
}

// patience is how long what has to happen may take.
const patience = waittest.Patience

// kept is the lease time of sessions that are not to run out.
const kept = lease.MaxTTL

var jobs atomic.Int64

// suspended names the test that no other one may run beside.
const suspended = "Suspended"

// fixture is one test's job, with an assigner that leads it.
type fixture struct {
	Store
	t     *testing.T
	ctx   context.Context
	job   string
	w     lease.WriteSession
	token lease.Token
}

// Run runs the suite. open is called once, for a store that all tests share.
func Run(t *testing.T, open func(t *testing.T) Store) {
	s := open(t)
	for _, c := range []struct {
		name string
		test func(*fixture)
	}{
		{suspended, (*fixture).suspended},
		{"JobLeaseIsExclusive", (*fixture).jobLeaseIsExclusive},
		{"StepsInOrder", (*fixture).stepsInOrder},
		{"CommitComparesRecords", (*fixture).commitComparesRecords},
		{"CommitComparesToken", (*fixture).commitComparesToken},
		{"CommitComparesReaders", (*fixture).commitComparesReaders},
		{"AcquireComparesRecord", (*fixture).acquireComparesRecord},
		{"ReleaseComparesValue", (*fixture).releaseComparesValue},
		{"ReleaseIsFinal", (*fixture).releaseIsFinal},
		{"StateCountsReaders", (*fixture).stateCountsReaders},
		{"WatchTellsBothInOrder", (*fixture).watchTellsBothInOrder},
		{"AwaitWakes", (*fixture).awaitWakes},
		{"AwaitFollows", (*fixture).awaitFollows},
		{"CloseReleases", (*fixture).closeReleases},
		{"LeaseRunsOut", (*fixture).leaseRunsOut},
		{"LeaseOfNoWholeSecondRunsOut", (*fixture).fractionRunsOut},
		{"KeepAliveKeeps", (*fixture).keepAliveKeeps},
		{"BoundsOfTTL", (*fixture).boundsOfTTL},
		{"JobsAreApart", (*fixture).jobsAreApart},
		{"ReadersFollowChanges", (*fixture).readersFollowChanges},
		{"DeadReaderRunsOut", (*fixture).deadReaderRunsOut},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != suspended {
				t.Parallel()
			} // else the others would be suspended with it
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			f := &fixture{Store: s, t: t, ctx: ctx, job: fmt.Sprintf("job-%d", jobs.Add(1))}
			f.w = f.writer()
			f.token = answered(f, "Lead", func() (lease.Token, error) { return f.w.Lead(ctx, f.job) })
			c.test(f)
		})
	}
}

func (f *fixture) writer() lease.WriteSession {
	f.t.Helper()
	w := answered(f, "OpenWriter", func() (lease.WriteSession, error) { return f.Writers.OpenWriter(f.ctx, kept) })
	f.keep(w)
	return w
}

func (f *fixture) reader() lease.ReadSession {
	f.t.Helper()
	r := f.unkept(kept)
	f.keep(r)
	return r
}

// unkept opens a session that is not renewed.
func (f *fixture) unkept(ttl time.Duration) lease.ReadSession {
	f.t.Helper()
	return answered(f, "OpenReader", func() (lease.ReadSession, error) { return f.open(ttl) })
}

func (f *fixture) open(ttl time.Duration) (lease.ReadSession, error) {
	return f.Readers.OpenReader(f.ctx, ttl, f.job)
}

// silent reports whether the store has not answered, though there was time to.
func (f *fixture) silent(err error) bool {
	return errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrSuspended) && f.ctx.Err() == nil
}

// answered calls until the store answers, and returns what it says.
func answered[T any](f *fixture, what string, call func() (T, error)) T {
	f.t.Helper()
	for {
		x, err := call()
		switch {
		case err == nil:
			return x
		case !f.silent(err):
			f.t.Fatalf("%s: %v", what, err)
		}
	}
}

// keep renews a session until the test ends.
func (f *fixture) keep(s lease.Session) {
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(f.TTL / 4):
			}
			if errors.Is(s.KeepAlive(ctx), lease.ErrLost) {
				return
			}
		}
	}()
	f.t.Cleanup(func() {
		cancel()
		<-done
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil && !errors.Is(err, lease.ErrLost) {
			f.t.Errorf("Close of a session: %v", err)
		}
	})
}

func (f *fixture) state() lease.State {
	f.t.Helper()
	return answered(f, "State", func() (lease.State, error) { return f.w.State(f.ctx, f.job) })
}

// commit carries out what is called for, which must be of this kind.
func (f *fixture) commit(want lease.Kind, wanted assignment.Generation) error {
	f.t.Helper()
	st := f.state()
	s := lease.Next(st, wanted)
	if s.Kind != want {
		f.t.Fatalf("called for is %s, want %s; the records are %+v", s.Kind, want, st)
	}
	o, _ := s.Outcome(st.Records)
	err := f.w.Commit(f.ctx, f.job, f.token, st, s)
	for f.silent(err) { // it may have been carried out, or may yet be
		if f.state().Records == o.Records {
			return nil
		}
		if err = f.w.Commit(f.ctx, f.job, f.token, st, s); errors.Is(err, lease.ErrChanged) && f.state().Records == o.Records {
			return nil
		}
	}
	return err
}

func (f *fixture) must(want lease.Kind, wanted assignment.Generation) {
	f.t.Helper()
	if err := f.commit(want, wanted); err != nil {
		f.t.Fatalf("%s: %v", want, err)
	}
}

// boot brings generation g in force in a new job.
func (f *fixture) boot(g assignment.Generation) {
	f.t.Helper()
	f.must(lease.Write, g)
	f.must(lease.Boot, g)
}

func (f *fixture) acquire(r lease.ReadSession, c lease.Claim, want bool) lease.Seen {
	f.t.Helper()
	var ok bool
	seen := answered(f, "Acquire of "+c.String(), func() (seen lease.Seen, err error) {
		seen, ok, err = r.Acquire(f.ctx, f.job, c)
		return seen, err
	})
	if ok != want {
		f.t.Fatalf("Acquire of %s: %v, want %v", c, ok, want)
	}
	return seen
}

func (f *fixture) release(r lease.ReadSession, c lease.Claim) {
	f.t.Helper()
	answered(f, "Release of "+c.String(), func() (struct{}, error) { return struct{}{}, r.Release(f.ctx, f.job, c) })
}

func (f *fixture) wantError(what string, err, want error) {
	f.t.Helper()
	if !errors.Is(err, want) {
		f.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// inTime tries what has to be done within the lease time of a session that it opens, again
// with another one if that ran out before it was done.
func (f *fixture) inTime(ttl time.Duration, try func() error) {
	f.t.Helper()
	for {
		began := time.Now()
		err := try()
		if err == nil {
			return
		}
		if !f.silent(err) && (!errors.Is(err, lease.ErrLost) || time.Since(began) < ttl) {
			f.t.Fatal(err)
		}
	}
}

// eventually waits until ok.
func (f *fixture) eventually(what string, ok func() bool) {
	f.t.Helper()
	for start := time.Now(); !ok(); time.Sleep(f.TTL / 100) {
		if time.Since(start) > patience {
			f.t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
