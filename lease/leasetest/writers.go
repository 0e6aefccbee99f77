package leasetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
)

func (f *fixture) jobLeaseIsExclusive() {
	other := f.writer()
	_, err := other.Lead(f.ctx, f.job)
	f.wantError("Lead of a job that another leads", err, lease.ErrHeld)
	again, err := f.w.Lead(f.ctx, f.job)
	if err != nil || again != f.token {
		f.t.Errorf("Lead of the job that it leads: %d, %v; want %d", again, err, f.token)
	}
	if err := other.Resign(f.ctx, f.job, f.token+1); err != nil {
		f.t.Errorf("Resign with another token: %v", err)
	}
	if _, err := other.Lead(f.ctx, f.job); !errors.Is(err, lease.ErrHeld) {
		f.t.Errorf("a wrong token has given the job lease back: %v", err)
	}
	if err := f.w.Resign(f.ctx, f.job, f.token); err != nil {
		f.t.Fatalf("Resign: %v", err)
	}
	next, err := other.Lead(f.ctx, f.job)
	if err != nil || next <= f.token {
		f.t.Errorf("Lead after Resign: %d, %v; want a token above %d", next, err, f.token)
	}
}

func (f *fixture) stepsInOrder() {
	f.must(lease.Idle+lease.Write, 1)
	for _, k := range []lease.Kind{lease.Boot, lease.Write, lease.Span, lease.Recall, lease.Rewrite, lease.Retire, lease.Close, lease.Write, lease.Span} {
		wanted := assignment.Generation(2)
		if f.state().Guard.Generation == 2 {
			wanted = 3
		}
		f.must(k, wanted)
	}
	want := lease.Records{Head: 3, Guard: lease.Guard{Generation: 2, Open: true}, Bridge: lease.Bridge{From: 2, To: 3, Open: true}}
	if got := f.state().Records; got != want {
		f.t.Errorf("the records are %+v, want %+v", got, want)
	}
	// A step that is not called for is refused, whichever session asks.
	if err := f.w.Commit(f.ctx, f.job, f.token, f.state(), lease.Step{Kind: lease.Close}); err == nil {
		f.t.Error("a bridge that is not recalled was closed")
	}
}

func (f *fixture) commitComparesRecords() {
	f.boot(1)
	old := f.state()
	f.must(lease.Write, 2)
	f.wantError("Commit on old records", f.w.Commit(f.ctx, f.job, f.token, old, lease.Next(old, 3)), lease.ErrChanged)

	// Of many that have read the same, one writes.
	read := f.state()
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 8 {
		wg.Go(func() {
			switch err := f.w.Commit(f.ctx, f.job, f.token, read, lease.Next(read, 2)); {
			case err == nil:
				mu.Lock()
				won++
				mu.Unlock()
			case !errors.Is(err, lease.ErrChanged):
				f.t.Errorf("Commit beside others: %v", err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		f.t.Errorf("%d of 8 equal commits were carried out", won)
	}
}

func (f *fixture) commitComparesToken() {
	f.boot(1)
	read := f.state()
	if err := f.w.Resign(f.ctx, f.job, f.token); err != nil {
		f.t.Fatal(err)
	}
	f.wantError("Commit without a job lease", f.w.Commit(f.ctx, f.job, f.token, read, lease.Next(read, 2)), lease.ErrDeposed)
	other := f.writer()
	if _, err := other.Lead(f.ctx, f.job); err != nil {
		f.t.Fatal(err)
	}
	f.wantError("Commit when another leads", f.w.Commit(f.ctx, f.job, f.token, read, lease.Next(read, 2)), lease.ErrDeposed)
	if got := f.state().Records; got != read.Records {
		f.t.Errorf("a deposed assigner has written: %+v, was %+v", got, read.Records)
	}
}

func (f *fixture) commitComparesReaders() {
	r := f.reader()
	f.boot(1)
	f.acquire(r, lease.GuardClaim(1), true)
	f.must(lease.Write, 2)
	f.must(lease.Span, 2)
	bridge := lease.Claim{From: 1, To: 2}
	f.acquire(r, bridge, true)
	f.must(lease.Recall, 2)
	f.wantError("rewriting a guard that is read", f.commit(lease.Rewrite, 2), lease.ErrReaders)
	f.release(r, lease.GuardClaim(1))
	f.must(lease.Rewrite, 2)
	f.must(lease.Retire, 2)
	f.wantError("closing a bridge that is read", f.commit(lease.Close, 2), lease.ErrReaders)
	f.release(r, bridge)
	f.must(lease.Close, 2)
}

func (f *fixture) awaitWakes() {
	f.boot(1)
	r := f.reader()
	since := f.state()
	type woken struct {
		lease.State
		error
	}
	wakes := make(chan woken, 1)
	go func() {
		st, err := f.w.Await(f.ctx, f.job, since.Revision)
		for f.silent(err) || err == nil && st.GuardReaders == since.GuardReaders { // early
			st, err = f.w.Await(f.ctx, f.job, max(st.Revision, since.Revision))
		}
		wakes <- woken{st, err}
	}()
	f.acquire(r, lease.GuardClaim(1), true)
	select {
	case w := <-wakes:
		if want := f.state(); w.error != nil || w.Records != want.Records || w.GuardReaders != want.GuardReaders || w.GuardOnly != want.GuardOnly || w.Revision <= since.Revision {
			f.t.Errorf("Await: %+v, %v, want %+v", w.State, w.error, want)
		}
	case <-time.After(patience):
		f.t.Error("Await has not noticed a new reader")
	}
	if st, err := f.w.Await(f.ctx, f.job, since.Revision); err != nil || st.GuardReaders != since.GuardReaders+1 {
		f.t.Errorf("Await since a revision that is past: %+v, %v", st, err)
	}
	ctx, cancel := context.WithTimeout(f.ctx, 20*time.Millisecond)
	defer cancel()
	var err error
	for err == nil || f.silent(err) && ctx.Err() == nil {
		_, err = f.w.Await(ctx, f.job, f.state().Revision)
	}
	f.wantError("Await when nothing changes", err, context.DeadlineExceeded)
}

// awaitFollows checks that a state made from what has changed, again and again, agrees
// with what is read.
func (f *fixture) awaitFollows() {
	f.boot(1)
	a, b := f.reader(), f.reader()
	told := f.state()
	bridge := lease.Claim{From: 1, To: 2}
	for _, do := range []func(){
		func() { f.acquire(a, lease.GuardClaim(1), true) },
		func() { f.acquire(b, lease.GuardClaim(1), true) },
		func() { f.must(lease.Write, 2) },
		func() { f.must(lease.Span, 2) },
		func() { f.acquire(a, bridge, true) },
		func() { f.must(lease.Recall, 2) },
		func() { f.release(b, lease.GuardClaim(1)) },
		func() { f.release(a, lease.GuardClaim(1)) },
		func() { f.must(lease.Rewrite, 2) },
		func() { f.acquire(b, lease.GuardClaim(2), true) },
		func() { f.must(lease.Retire, 2) },
		func() { f.release(a, bridge) },
		func() { f.must(lease.Close, 2) },
	} {
		do()
		want := f.state()
		want.Revision = 0
		for {
			st, err := f.w.Await(f.ctx, f.job, told.Revision)
			if f.silent(err) {
				continue
			}
			if err != nil {
				f.t.Fatalf("Await: %v, want %+v; it was %+v", err, want, told)
			}
			told = st
			if st.Revision = 0; st == want {
				break
			}
		}
	}
}

func (f *fixture) boundsOfTTL() {
	for _, ttl := range []time.Duration{0, -time.Second, lease.MinTTL - 1, lease.MaxTTL + 1} {
		if _, err := f.Readers.OpenReader(f.ctx, ttl, f.job); err == nil {
			f.t.Errorf("a session of %s was opened", ttl)
		}
	}
}

func (f *fixture) jobsAreApart() {
	f.boot(1)
	r := f.reader()
	f.acquire(r, lease.GuardClaim(1), true)
	other := f.job + "-b" // begins like the other's name
	token, err := f.w.Lead(f.ctx, other)
	if err != nil {
		f.t.Fatal(err)
	}
	st, err := f.w.State(f.ctx, other)
	if err != nil || st.Records != (lease.Records{}) || st.GuardReaders != 0 {
		f.t.Fatalf("a new job has %+v, %v", st, err)
	}
	if err := f.w.Commit(f.ctx, other, token, st, lease.Next(st, 5)); err != nil {
		f.t.Fatal(err)
	}
	if st, err = f.w.State(f.ctx, other); err != nil {
		f.t.Fatal(err)
	}
	if err := f.w.Commit(f.ctx, other, token, st, lease.Next(st, 5)); err != nil {
		f.t.Errorf("the first guard of one job while another's has readers: %v", err)
	}
	if got := f.state(); got.Guard.Generation != 1 || got.GuardReaders != 1 {
		f.t.Errorf("another job's steps have changed this one: %+v", got)
	}
}
