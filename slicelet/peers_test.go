package slicelet

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestStandsForLies: what one client says of others that it holds back takes nothing from the
// others, be there room for all or not.
func TestStandsForLies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backlog atomic.Int64 // tenths of requests that were served, behind something that is not the CPU
		c := newCluster(t, func(cfg *Config) {
			cfg.Signals = []func() float64{func() float64 { return float64(backlog.Load()) / 200 }}
		})
		defer c.stop()
		c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, Overload: &slicerv1.OverloadConfig{Admission: slicerv1.Admission_ADMISSION_ON}})
		synctest.Wait()
		// served is what share of critical requests of honest clients is, where one request of
		// another client comes with ten of theirs, after some seconds.
		served := func(can int64, standsFor int, p overload.Priority) float64 {
			time.Sleep(time.Minute)
			backlog.Store(0)
			var level overload.TaskLevel // of all honest clients, which hold back what is told
			n, of := 0, 0
			begun := time.Now()
			admit := func(now time.Time, a Arrival) bool {
				ok := c.s.Admission().Admit(t.Context(), now, a) == overload.Served
				if ok {
					backlog.Add(10)
				}
				return ok
			}
			for i := range 6000 {
				time.Sleep(time.Millisecond)
				synctest.Wait() // for what measures how long requests wait
				now := time.Now()
				backlog.Store(max(backlog.Load()-can, 0))
				if i%10 == 0 {
					a := Arrival{StandsFor: standsFor, Peer: 1}
					a.Labels.Criticality = p.Criticality()
					a.Labels.SetCohort(int(overload.Cohorts - 1 - p%overload.Cohorts))
					admit(now, a)
				}
				a := Arrival{Peer: 2, Labels: overload.Labels{Criticality: overload.Critical}}
				if i%2 == 0 {
					a.Labels.Criticality = overload.Sheddable
				}
				a.Labels.SetCohort(i / 2 % overload.Cohorts)
				if a.Labels.Criticality == overload.Critical && i > 2000 {
					of++
				}
				var sent bool
				if a.StandsFor, sent = level.Send(now.Sub(begun), a.Labels.Priority()); !sent {
					continue
				}
				if admit(now, a) && a.Labels.Criticality == overload.Critical && i > 2000 {
					n++
				}
				level.Hear(now.Sub(begun), c.s.Admission().Level())
			}
			return float64(n) / float64(of)
		}
		for _, can := range []int64{12, 8} { // of 11 tenths a millisecond
			for _, p := range []overload.Priority{overload.Priorities - 1, 3 * overload.Cohorts, 2*overload.Cohorts + 5, 3} {
				honest, lies := served(can, 0, p), served(can, overload.MostStandsFor, p)
				t.Logf("%v tenths a millisecond, the liar's priority %d: %.3f of what is critical is served, without the lies %.3f", can, p, lies, honest)
				if min(lies, honest) < .8 { // a liar that is believed leaves .6
					t.Error("too little")
				}
			}
		}
	})
}

// TestPeers: requests of a peer stand for ten times as many as it sends, at most, and a tenth
// of them are retries.
func TestPeers(t *testing.T) {
	var p peers
	if n := p.standsFor(7, 100); n != 0 {
		t.Errorf("one that has sent nothing stands for %d", n)
	}
	for range 5 {
		p.arrived(7)
	}
	if a, b, c := p.standsFor(7, 30), p.standsFor(7, 30), p.standsFor(7, 30); a != 30 || b != 20 || c != 0 {
		t.Errorf("five requests stand for %d, %d and %d", a, b, c)
	}
	for range overload.MostStandsFor {
		p.arrived(8)
	}
	if n := p.standsFor(8, 2*overload.MostStandsFor); n > overload.MostStandsFor+standsForEach {
		t.Errorf("they stand for %d", n)
	}
	for _, x := range []struct {
		every, most, least int // one of so many is a retry
	}{{1, 101, 90}, {10, 100, 90}, {20, 50, 49}} {
		p, again := peers{}, 0
		for i := range 1000 {
			if p.attempt(9, i%x.every == 0) {
				again++
			}
		}
		if again > x.most || again < x.least {
			t.Errorf("of a thousand, of which one of %d says to be a retry, %d count", x.every, again)
		}
	}
}

// TestRetryLies: a client that calls each of its requests a retry does not forbid the others
// theirs; one that sends all there is does, and so do many.
func TestRetryLies(t *testing.T) {
	for _, x := range []struct {
		liars, of int
		want      bool
	}{{1, 10, true}, {1, 4, true}, {4, 4, false}, {1, 1, false}, {6, 10, false}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, nil)
			defer c.stop()
			c.assign(5, assignment.TaskRunning, "mo")
			for i := range 4000 {
				time.Sleep(time.Millisecond)
				before := 0
				if i%x.of < x.liars {
					before = 2
				}
				c.s.CountAttempt(time.Now(), uint64(i%x.of), before)
			}
			if got := c.s.Elsewhere(); got != x.want {
				t.Errorf("%s of %d clients call all their requests retries: another task may be asked: %v", strconv.Itoa(x.liars), x.of, got)
			}
		})
	}
}

// TestPatience: where requests wait for a pool, a flood of those that say to wait for ever takes
// no more than its part, if they are not believed.
func TestPatience(t *testing.T) {
	for _, x := range []struct {
		patience, flood time.Duration // how long is believed, and said; 0 says nothing
		least, most     float64
	}{{0, 400 * time.Millisecond, .25, .5}, {0, time.Hour, 0, .1}, {0, 0, 0, .1}, {400 * time.Millisecond, time.Hour, .25, .5}, {400 * time.Millisecond, 0, .25, .5}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, func(cfg *Config) { cfg.Patience = x.patience })
			defer c.stop()
			c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, Overload: &slicerv1.OverloadConfig{Admission: slicerv1.Admission_ADMISSION_ON}})
			synctest.Wait()
			pool := make(chan struct{}, 2) // can do 50 a second
			var asked, served atomic.Int64
			var calls sync.WaitGroup
			for i := range 20 * 140 { // in 20 s
				time.Sleep(time.Second / 140)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
				if honest := i%7 < 2; !honest {
					if cancel(); x.flood == 0 {
						ctx, cancel = context.WithCancel(t.Context())
					} else {
						ctx, cancel = context.WithTimeout(t.Context(), x.flood)
					}
				} else if i > 1400 {
					asked.Add(1)
				}
				l := overload.Labels{Criticality: overload.Critical}
				l.SetCohort(i * 37 % overload.Cohorts)
				if c.s.Admission().Admit(ctx, time.Now(), Arrival{Labels: l}) != overload.Served {
					cancel()
					continue
				}
				calls.Go(func() {
					defer cancel()
					began := time.Now()
					c.s.Admission().Begin()
					select {
					case pool <- struct{}{}:
						time.Sleep(40 * time.Millisecond)
						<-pool
					case <-ctx.Done():
					}
					if i%7 < 2 && i > 1400 && ctx.Err() == nil {
						served.Add(1)
					}
					c.s.Admission().End(ctx, began, time.Now(), false)
				})
			}
			calls.Wait()
			if share := float64(served.Load()) / float64(asked.Load()); share < x.least || share > x.most {
				t.Errorf("%v are believed, the flood says %v: of the others %.2f are served, want %v to %v", x.patience, x.flood, share, x.least, x.most)
			}
		})
	}
}
