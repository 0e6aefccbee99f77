package assigner

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// The session is as short as the shortest lease time of the jobs that are led
// under it, also when a job's is made shorter while it is led.
func TestSessionIsAsShortAsTheJobs(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		begun := time.Now()
		clock := func() time.Duration { return time.Since(begun) }
		st := openPebble(t)
		served := openLeases(t, st)
		leases := newSpy(t, served)
		n := start(Config{Stores: []NamedStore{{Backend: st, Leases: leases}}})
		d := n.attach("d1")
		t1, t2 := task("t1", 1), task("t2", 1)
		put := func(name string, ms int64) {
			j := consistentJob()
			j.Name, j.LeaseDurationMs = name, ms
			n.put(j)
		}
		lead := func(name string, ms int64) {
			put(name, ms)
			d.preferred(name, "a1")
			d.want(&slicerv1.Want{Job: name})
			d.reports(name, true, t1, t2)
			d.holds(name, "t1 and t2", ownedBy("t1", "t2"))
		}
		is := func(ttl time.Duration) func() bool { return func() bool { return leases.newest().TTL() == ttl } }
		lead("slow", 60_000)
		eventually(t, "the longest is the config's", is(5*time.Second))
		lead("job", 3_000)
		eventually(t, "the new job's counts", is(3*time.Second))
		put("job", 2_000)
		eventually(t, "what the job's has become counts", is(2*time.Second))

		// Both jobs are led under the new session.
		p1 := joinAs(t, st, served, t1, time.Second, clock)
		t2.State = slicerv1.TaskState_TASK_STATE_DRAINING
		for _, job := range []string{"job", "slow"} {
			d.reports(job, false, t1, t2)
			a := d.holds(job, "t1", ownedBy("t1"))
			if job == "job" {
				eventually(t, "it is in force", together(a.Generation(), p1))
			}
		}
		for _, job := range []string{"job", "slow"} {
			if c := n.inspect(job).Consistency; c == nil || !c.Leading || c.Error != "" {
				t.Errorf("%s: %v", job, c)
			}
		}
	})
}

// backward is a lease store that can be found to have gone back, and notes for how
// long it is suspended.
type backward struct {
	lease.Writers
	back      atomic.Bool
	suspended chan time.Duration
}

func (b *backward) OpenWriter(ctx context.Context, ttl time.Duration) (lease.WriteSession, error) {
	w, err := b.Writers.OpenWriter(ctx, ttl)
	return &backwardSession{w, b}, err
}

func (b *backward) Suspend(_ context.Context, d time.Duration) error {
	b.suspended <- d
	return nil
}

type backwardSession struct {
	lease.WriteSession
	b *backward
}

func (s *backwardSession) KeepAlive(ctx context.Context) error {
	if s.b.back.Swap(false) {
		return lease.ErrWentBack
	}
	return s.WriteSession.KeepAlive(ctx)
}

// A store that has gone back does not know all that it has granted, so it is
// suspended for the longest time for which that may be held.
func TestStoreThatWentBackIsSuspended(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		st := openPebble(t)
		leases := &backward{Writers: openLeases(t, st), suspended: make(chan time.Duration, 1)}
		n := start(Config{Stores: []NamedStore{{Backend: st, Leases: leases}}})
		d := n.attach("d1")
		for name, ms := range map[string]int64{"short": 3_000, "long": 60_000} {
			j := consistentJob()
			j.Name, j.LeaseDurationMs = name, ms
			n.put(j)
			d.preferred(name, "a1")
			d.want(&slicerv1.Want{Job: name})
			d.reports(name, true, task("t1", 1))
			d.holds(name, "t1", ownedBy("t1"))
		}
		leases.back.Store(true)
		select {
		case got := <-leases.suspended:
			if got != time.Minute {
				t.Errorf("suspended for %s, want the longest lease duration, %s", got, time.Minute)
			}
		case <-time.After(time.Minute):
			t.Error("not suspended")
		}
	})
}
