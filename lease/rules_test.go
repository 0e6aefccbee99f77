package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/leasetest"
)

// another joins the job with a reader of its own.
func (v *world) another(incarnation uint64, fetch func(g assignment.Generation) (*assignment.Assignment, error)) (*lease.Reader, *lease.Job) {
	v.t.Helper()
	r, err := lease.NewReader(lease.Config{Readers: v.store, TTL: ttl, Clock: func() time.Duration { return time.Since(v.start) }})
	if err != nil {
		v.t.Fatal(err)
	}
	j, err := r.Join(lease.JobConfig{Job: "job", Task: leasetest.TaskName(1), Incarnation: incarnation,
		Fetch: func(_ context.Context, g assignment.Generation) (*assignment.Assignment, error) { return fetch(g) }})
	if err != nil {
		v.t.Fatal(err)
	}
	return r, j
}

// What was fetched counts for the generation that was asked for, and the job's own:
// a Distributor may be behind or ahead, or wrong.
func TestAnotherAssignmentIsNotTaken(t *testing.T) {
	for name, wrong := range map[string]func(g assignment.Generation) (*assignment.Assignment, error){
		"of the next generation": func(g assignment.Generation) (*assignment.Assignment, error) {
			return leasetest.Assignment("job", g+1, 2)
		},
		"of the generation before": func(g assignment.Generation) (*assignment.Assignment, error) {
			return leasetest.Assignment("job", g-1, 2)
		},
		"of another job": func(g assignment.Generation) (*assignment.Assignment, error) {
			return leasetest.Assignment("other", g, 2)
		},
		"nothing, and without error": func(assignment.Generation) (*assignment.Assignment, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newWorld(t)
				v.advance(7)
				r, j := v.another(leasetest.Incarnation(1), wrong)
				time.Sleep(ttl)
				if got := belief(j.Belief()); got != "nothing" {
					t.Errorf("it believes in %s", got)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				v.close()
			})
		})
	}
}

// An assignment that names a task names one incarnation of it: of two processes with
// one name at most one is the owner.
func TestKeysOfAnotherIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		right := func(g assignment.Generation) (*assignment.Assignment, error) {
			return leasetest.Assignment("job", g, 2)
		}
		r, j := v.another(leasetest.Incarnation(1)+1, right)
		v.advance(1)
		time.Sleep(time.Second)
		if b := j.Belief(); belief(b) != "guard 1" || len(b.Slices()) != 0 {
			t.Errorf("it believes in %s, in which %v are its own", belief(b), b.Slices())
		}
		for i := range assignment.SliceKey(64) {
			if k := i * (assignment.KeyspaceEnd / 64); j.Owns(k) {
				t.Fatalf("key %s of the task's former incarnation is its own", k)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		v.close()
	})
}

// slow puts off acquires of bridges.
type slow struct {
	lease.Readers
	by time.Duration
}

func (s slow) OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (lease.ReadSession, error) {
	r, err := s.Readers.OpenReader(ctx, ttl, jobs...)
	return slowSession{r, s.by}, err
}

type slowSession struct {
	lease.ReadSession
	by time.Duration
}

func (s slowSession) Acquire(ctx context.Context, job string, c lease.Claim) (lease.Seen, bool, error) {
	if c.Bridge() {
		time.Sleep(s.by)
	}
	return s.ReadSession.Acquire(ctx, job, c)
}

// The guard is recalled when its readers hold the bridge, within the time that they are
// given: until then the keys that move are served by their former owners.
func TestRecallWaitsForTheBridge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 500 * time.Millisecond
		v := newWorldOf(t, func(r lease.Readers) lease.Readers { return slow{r, late} })
		right := func(g assignment.Generation) (*assignment.Assignment, error) {
			return leasetest.Assignment("job", g, 2)
		}
		r, quick := v.another(leasetest.Incarnation(1), right)
		v.advance(1)
		time.Sleep(time.Second)
		done, start := make(chan struct{}), time.Now()
		var lost, gained time.Duration
		moves := moving(t, 1, 2)
		go func() {
			defer close(done)
			for gained == 0 && time.Since(start) < ttl {
				if lost == 0 && !quick.Owns(moves) {
					lost = time.Since(start)
				}
				if v.job.Owns(moves) {
					gained = time.Since(start)
				}
				time.Sleep(time.Millisecond)
			}
		}()
		v.advance(2)
		<-done
		if lost < late || gained == 0 || gained-lost > 100*time.Millisecond {
			t.Errorf("a key that moves was lost after %s and gained after %s; one reader takes %s to come onto the bridge", lost, gained, late)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		v.close()
	})
}

// moving is a key that goes from task 1 to task 0.
func moving(t *testing.T, from, to assignment.Generation) assignment.SliceKey {
	a, err := leasetest.Assignment("job", from, 2)
	if err != nil {
		t.Fatal(err)
	}
	b, err := leasetest.Assignment("job", to, 2)
	if err != nil {
		t.Fatal(err)
	}
	for s, r := range a.All() {
		if r.At(0).Name == leasetest.TaskName(1) && b.Lookup(s.Start).At(0).Name == leasetest.TaskName(0) {
			return s.Start
		}
	}
	t.Fatal("no key moves from task 1 to task 0")
	return 0
}

// A recall waits for readers on the side that is left, and for no others.
func TestAdvanceSaysForWhomItWaits(t *testing.T) {
	guard, bridge := lease.Guard{Generation: 1, Open: true}, lease.Bridge{From: 1, To: 2, Open: true}
	for _, c := range []struct {
		state lease.State
		want  lease.Step
	}{
		{lease.State{Records: lease.Records{Head: 2, Guard: guard, Bridge: bridge}, GuardOnly: 1}, lease.Step{Kind: lease.Recall, Wait: true}},
		{lease.State{Records: lease.Records{Head: 2, Guard: guard, Bridge: bridge}, BridgeOnly: 1}, lease.Step{Kind: lease.Recall}},
		{lease.State{Records: lease.Records{Head: 2, Guard: lease.Guard{Generation: 2, Open: true}, Bridge: bridge}, BridgeOnly: 1}, lease.Step{Kind: lease.Retire, Wait: true}},
		{lease.State{Records: lease.Records{Head: 2, Guard: lease.Guard{Generation: 2, Open: true}, Bridge: bridge}, GuardOnly: 1}, lease.Step{Kind: lease.Retire}},
	} {
		if got := lease.Next(c.state, 2); got != c.want {
			t.Errorf("%+v calls for %+v, want %+v", c.state, got, c.want)
		}
	}
}

// An assigner that is deposed in the middle of a change stops, and says so.
func TestAdvanceStopsWhenDeposed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		if err := v.w.Resign(t.Context(), "job", v.token); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), ttl)
		defer cancel()
		_, err := lease.Advance(ctx, v.w, lease.Change{Job: "job", Token: v.token, Wanted: 2, Wait: time.Second})
		if !errors.Is(err, lease.ErrDeposed) {
			t.Errorf("without the job lease: %v, want %v", err, lease.ErrDeposed)
		}
		v.close()
	})
}

// deaf never answers the first call of each kind.
type deaf struct {
	lease.WriteSession
	state, commit bool
}

func (d *deaf) State(ctx context.Context, job string) (lease.State, error) {
	if !d.state {
		d.state = true
		<-ctx.Done()
		return lease.State{}, ctx.Err()
	}
	return d.WriteSession.State(ctx, job)
}

func (d *deaf) Commit(ctx context.Context, job string, t lease.Token, read lease.State, s lease.Step) error {
	if !d.commit {
		d.commit = true
		_ = d.WriteSession.Commit(ctx, job, t, read, s) // what is done is not told
		<-ctx.Done()
		return ctx.Err()
	}
	return d.WriteSession.Commit(ctx, job, t, read, s)
}

// A change whose calls are not answered makes them again.
func TestAdvanceBearsCallsWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d := &deaf{WriteSession: v.w}
		st, err := lease.Advance(ctx, d, lease.Change{Job: "job", Token: v.token, Wanted: 2, Wait: time.Second})
		if err != nil || st.Head != 2 || !d.state || !d.commit {
			t.Errorf("%+v, %v", st, err)
		}
		v.close()
	})
}

// The guard is given up for the bridge of the change under way, and no other.
func TestCoreCrossesByTheBridgeOfThisChange(t *testing.T) {
	d := newDrive(t)
	d.believing()
	d.seen(guard1, bridge12, "fetch 2")
	d.want(lease.Event{Kind: lease.InHand, Generation: 2}, "acquire bridge 1-2")
	d.acquired(bridge12.Claim())
	d.seen(recall1, lease.Bridge{From: 1, To: 3, Open: true}, "fetch 3", "release bridge 1-2")
	if h := d.core.Holding(); h.Guard != 1 {
		t.Errorf("it believes in %+v, and holds no bridge of this change", h)
	}
}

// What each step makes of the records, and whose readers must be gone in the very
// transaction.
func TestOutcomes(t *testing.T) {
	guard3, bridge := lease.Guard{Generation: 3, Open: true}, lease.Bridge{From: 3, To: 5, Open: true}
	for _, c := range []struct {
		step           lease.Kind
		read, write    lease.Records
		guard, bridges bool // must have no readers
	}{
		{lease.Boot, lease.Records{Head: 3}, lease.Records{Head: 3, Guard: guard3}, true, false},
		{lease.Write, lease.Records{Head: 3, Guard: guard3}, lease.Records{Head: 5, Guard: guard3}, false, false},
		{lease.Span, lease.Records{Head: 5, Guard: guard3}, lease.Records{Head: 5, Guard: guard3, Bridge: bridge}, false, true},
		{lease.Recall, lease.Records{Head: 5, Guard: guard3, Bridge: bridge}, lease.Records{Head: 5, Guard: lease.Guard{Generation: 3}, Bridge: bridge}, false, false},
		{lease.Rewrite, lease.Records{Head: 5, Guard: lease.Guard{Generation: 3}, Bridge: bridge},
			lease.Records{Head: 5, Guard: lease.Guard{Generation: 5, Open: true}, Bridge: bridge}, true, false},
		{lease.Retire, lease.Records{Head: 5, Guard: lease.Guard{Generation: 5, Open: true}, Bridge: bridge},
			lease.Records{Head: 5, Guard: lease.Guard{Generation: 5, Open: true}, Bridge: lease.Bridge{From: 3, To: 5}}, false, false},
		{lease.Close, lease.Records{Head: 5, Guard: lease.Guard{Generation: 5, Open: true}, Bridge: lease.Bridge{From: 3, To: 5}},
			lease.Records{Head: 5, Guard: lease.Guard{Generation: 5, Open: true}}, false, true},
	} {
		o, err := lease.Step{Kind: c.step, Head: 5}.Outcome(c.read)
		if err != nil || o.Records != c.write || o.NoGuardReaders != c.guard || o.NoBridgeReaders != c.bridges {
			t.Errorf("%s makes %+v, %v; want %+v, without readers of the guard %t, of the bridge %t", c.step, o, err, c.write, c.guard, c.bridges)
		}
	}
	// A change that is resumed goes where its bridge says, whatever the head is.
	o, err := lease.Step{Kind: lease.Rewrite}.Outcome(lease.Records{Head: 9, Guard: lease.Guard{Generation: 3}, Bridge: bridge})
	if err != nil || o.Guard.Generation != 5 {
		t.Errorf("a change to 5 that is resumed ends in %+v, %v", o.Guard, err)
	}
}
