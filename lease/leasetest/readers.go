package leasetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
)

func (f *fixture) acquireComparesRecord() {
	r := f.reader()
	if seen := f.acquire(r, lease.GuardClaim(1), false); seen.Guard != (lease.Guard{}) {
		f.t.Errorf("a job without a guard has %+v", seen)
	}
	f.boot(1)
	f.acquire(r, lease.GuardClaim(2), false)
	f.acquire(r, lease.GuardClaim(1), true)
	f.acquire(r, lease.GuardClaim(1), true) // again, as after an answer that was lost
	f.acquire(r, lease.Claim{From: 1, To: 2}, false)
	f.must(lease.Write, 2)
	f.must(lease.Span, 2)
	f.acquire(r, lease.Claim{From: 1, To: 3}, false)
	f.acquire(r, lease.Claim{From: 1, To: 2}, true)
	f.must(lease.Recall, 2)
	late := f.reader()
	seen := f.acquire(late, lease.GuardClaim(1), false)
	want := lease.Seen{Revision: seen.Revision, Guard: lease.Guard{Generation: 1}, Bridge: lease.Bridge{From: 1, To: 2, Open: true}}
	if seen != want {
		f.t.Errorf("a refused acquire says %+v, want %+v", seen, want)
	}
	f.acquire(late, lease.Claim{From: 1, To: 2}, true)
	f.release(r, lease.GuardClaim(1))
	f.must(lease.Rewrite, 2)
	f.acquire(late, lease.GuardClaim(1), false)
	f.acquire(late, lease.GuardClaim(2), true)
	f.must(lease.Retire, 2)
	f.acquire(r, lease.Claim{From: 1, To: 2}, false)
}

func (f *fixture) releaseComparesValue() {
	f.boot(1)
	r := f.reader()
	f.release(r, lease.GuardClaim(1)) // nothing is held
	f.acquire(r, lease.GuardClaim(1), true)
	f.release(r, lease.GuardClaim(7))
	f.release(r, lease.Claim{From: 1, To: 2})
	if n := f.state().GuardReaders; n != 1 {
		f.t.Errorf("%d readers after releases of something else, want 1", n)
	}
	f.release(r, lease.GuardClaim(1))
	if n := f.state().GuardReaders; n != 0 {
		f.t.Errorf("%d readers after the release, want 0", n)
	}
}

// releaseIsFinal gives up acquires while the guard is recalled: some are carried
// out, some are not, and none after the release.
func (f *fixture) releaseIsFinal() {
	f.boot(1)
	r := f.reader()
	f.must(lease.Write, 2)
	f.must(lease.Span, 2)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(f.ctx, time.Duration(i)*100*time.Microsecond)
			defer cancel()
			_, _, _ = r.Acquire(ctx, f.job, lease.GuardClaim(1))
		})
	}
	f.must(lease.Recall, 2)
	f.release(r, lease.GuardClaim(1))
	for range 20 {
		if n := f.state().GuardReaders; n != 0 {
			f.t.Errorf("%d readers after a release that followed the recall", n)
		}
		time.Sleep(f.TTL / 100)
	}
	wg.Wait()
}

func (f *fixture) stateCountsReaders() {
	f.boot(1)
	a, b, c := f.reader(), f.reader(), f.reader()
	bridge := lease.Claim{From: 1, To: 2}
	f.acquire(a, lease.GuardClaim(1), true)
	f.acquire(b, lease.GuardClaim(1), true)
	f.must(lease.Write, 2)
	f.must(lease.Span, 2)
	if s := lease.Next(f.state(), 2); s.Kind != lease.Recall || !s.Wait {
		f.t.Errorf("no session is on the bridge, and called for is %+v", s)
	}
	f.acquire(a, bridge, true)
	f.acquire(c, bridge, true)
	if st := f.state(); st.GuardReaders != 2 || st.BridgeReaders != 2 || st.GuardOnly != 1 || st.BridgeOnly != 1 {
		f.t.Errorf("the state counts %+v", st)
	}
	f.acquire(b, bridge, true)
	if s := lease.Next(f.state(), 2); s.Kind != lease.Recall || s.Wait {
		f.t.Errorf("all are on the bridge, and called for is %+v", s)
	}
}

func (f *fixture) watchTellsBothInOrder() {
	r := f.reader()
	w, err := r.Watch(f.ctx, f.job)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { w.Close() }()
	next := func() (seen lease.Seen, err error) {
		for seen, err = w.Next(f.ctx); f.silent(err); seen, err = w.Next(f.ctx) {
			w.Close()
			if w, err = r.Watch(f.ctx, f.job); err != nil {
				break
			}
		}
		return seen, err
	}
	if seen, err := next(); err != nil || seen.Guard != (lease.Guard{}) {
		f.t.Fatalf("first Next: %+v, %v", seen, err)
	}
	go func() {
		for wanted := assignment.Generation(1); ; {
			st, err := f.w.State(f.ctx, f.job)
			if st.Guard.Open {
				wanted = 2
			}
			s := lease.Next(st, wanted)
			if err == nil && s.Kind == lease.Idle {
				return
			}
			if err == nil {
				err = f.w.Commit(f.ctx, f.job, f.token, st, s)
			}
			if err != nil && !f.silent(err) && !errors.Is(err, lease.ErrChanged) {
				return
			}
		}
	}()
	// Each state that is told is one of the protocol's, later than the one before; the last is told.
	order := []lease.Seen{
		{},
		{Guard: lease.Guard{Generation: 1, Open: true}},
		{Guard: lease.Guard{Generation: 1, Open: true}, Bridge: lease.Bridge{From: 1, To: 2, Open: true}},
		{Guard: lease.Guard{Generation: 1}, Bridge: lease.Bridge{From: 1, To: 2, Open: true}},
		{Guard: lease.Guard{Generation: 2, Open: true}, Bridge: lease.Bridge{From: 1, To: 2, Open: true}},
		{Guard: lease.Guard{Generation: 2, Open: true}, Bridge: lease.Bridge{From: 1, To: 2}},
		{Guard: lease.Guard{Generation: 2, Open: true}},
	}
	at, revision := 0, int64(0)
	for at < len(order)-1 {
		seen, err := next()
		if err != nil {
			f.t.Fatalf("Next: %v", err)
		}
		if seen.Revision < revision {
			f.t.Errorf("revision %d after %d", seen.Revision, revision)
		}
		revision, seen.Revision = seen.Revision, 0
		was := at
		for at < len(order) && order[at] != seen {
			at++
		}
		if at == len(order) {
			f.t.Fatalf("after state %d came %+v, which is no later one", was, seen)
		}
	}
}

func (f *fixture) closeReleases() {
	f.boot(1)
	r := f.unkept(kept)
	f.acquire(r, lease.GuardClaim(1), true)
	if err := r.Close(f.ctx); err != nil {
		f.t.Fatalf("Close: %v", err)
	}
	if n := f.state().GuardReaders; n != 0 {
		f.t.Errorf("%d readers after the session's close", n)
	}
	_, _, err := r.Acquire(f.ctx, f.job, lease.GuardClaim(1))
	f.wantError("Acquire in a closed session", err, lease.ErrLost)
	f.wantError("KeepAlive of a closed session", r.KeepAlive(f.ctx), lease.ErrLost)
}

func (f *fixture) leaseRunsOut() { f.runsOut(f.TTL) }

// fractionRunsOut is for stores that count whole seconds: they round up.
func (f *fixture) fractionRunsOut() { f.runsOut(f.TTL + f.TTL/3) }

// runsOut checks that what is not renewed goes, and no sooner than its session's
// TTL says.
func (f *fixture) runsOut(ttl time.Duration) {
	f.boot(1)
	other := f.job + "-other"
	f.inTime(ttl, func() error {
		w, err := f.Writers.OpenWriter(f.ctx, ttl)
		if err == nil {
			_, err = w.Lead(f.ctx, other)
		}
		return err
	})
	var r lease.ReadSession
	var start time.Time
	f.inTime(ttl, func() (err error) {
		if r, err = f.open(ttl); err != nil {
			return err
		}
		if granted := r.TTL(); granted > ttl {
			f.t.Errorf("a session of %s has %s", ttl, granted)
		}
		start = time.Now()
		if err := r.KeepAlive(f.ctx); err != nil {
			return err
		}
		return holds(f, r)
	})
	f.eventually("an abandoned reader is gone", func() bool { return f.state().GuardReaders == 0 })
	// No sooner, seen from before the last keepalive was sent.
	if took := time.Since(start); took < r.TTL() {
		f.t.Errorf("a lease of %s was gone after %s", r.TTL(), took)
	}
	_, _, err := r.Acquire(f.ctx, f.job, lease.GuardClaim(1))
	f.wantError("Acquire under a lease that has run out", err, lease.ErrLost)
	f.wantError("KeepAlive of a lease that has run out", r.KeepAlive(f.ctx), lease.ErrLost)
	if n := f.state().GuardReaders; n != 0 {
		f.t.Errorf("%d readers, and the only lease has run out", n)
	}
	f.eventually("the job lease of an abandoned assigner is free", func() bool {
		_, err := f.w.Lead(f.ctx, other)
		return err == nil
	})
}

// holds acquires the guard, which is of generation 1.
func holds(f *fixture, r lease.ReadSession) error {
	_, ok, err := r.Acquire(f.ctx, f.job, lease.GuardClaim(1))
	if err == nil && !ok {
		err = errors.New("the guard is refused")
	}
	return err
}

func (f *fixture) keepAliveKeeps() {
	f.boot(1)
	for !renewed(f) { // else there was no time to
	}
}

// renewed checks that what is held lasts for more than two lease times if it is renewed more
// often than each. It is false if that was not so, and the lease is gone.
func renewed(f *fixture) bool {
	f.t.Helper()
	f.eventually("what was lost is not held", func() bool { return f.state().GuardReaders == 0 })
	var r lease.ReadSession
	var newest time.Time // before the last renewal was sent
	f.inTime(f.TTL, func() (err error) {
		newest = time.Now()
		if r, err = f.open(f.TTL); err != nil {
			return err
		}
		return holds(f, r)
	})
	for start := newest; time.Since(start) < 2*f.TTL+f.TTL/2; time.Sleep(f.TTL / 10) {
		sent := time.Now()
		err := r.KeepAlive(f.ctx)
		if err == nil {
			newest = sent
		}
		n := f.state().GuardReaders
		switch gone := n != 1 || errors.Is(err, lease.ErrLost); {
		case gone && time.Since(newest) < f.TTL:
			f.t.Fatalf("%d readers %s after the first, which is kept alive: %v", n, time.Since(start), err)
		case gone:
			return false
		}
	}
	return true
}
