package loadbalance_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// warming is a job at rest that some tasks join.
type warming struct {
	t     *testing.T
	cfg   assignment.JobConfig
	keys  []keyLoad
	tasks []assignment.Task
	ages  []time.Duration
	a     *assignment.Assignment
	out   loadbalance.Output
	moved float64 // load that came to other tasks
}

// idleJob is a job that begins with n tasks, and of which nothing is asked.
func idleJob(t *testing.T, n, maxReplicas int, warmUp time.Duration) *warming {
	w := &warming{t: t, cfg: config(1, maxReplicas), tasks: fleet(n)}
	w.cfg.WarmUp = warmUp
	w.out = loadbalance.Rebalance(loadbalance.Input{Tasks: w.tasks, Config: w.cfg})
	w.a = follow(t, nil, w.tasks, w.out)
	return w
}

func newWarming(t *testing.T, n int, skew float64, most int, warmUp time.Duration) *warming {
	w := idleJob(t, n, most, warmUp)
	w.keys = zipf(3000, skew, 1000)
	for range 30 {
		w.round(false)
	}
	w.moved = 0
	return w
}

// join brings in tasks; those there are warm.
func (w *warming) join(n int) {
	w.tasks = fleet(len(w.tasks) + n)
	w.ages = make([]time.Duration, len(w.tasks))
	for i := range len(w.tasks) - n {
		w.ages[i] = -1
	}
	w.round(true)
}

func (w *warming) round(membership bool) {
	l := measure(w.a, w.keys)
	for _, k := range w.keys[:min(50, len(w.keys))] {
		l.Hot = append(l.Hot, assignment.HotKey{Key: k.key, Rate: k.rate})
	}
	w.out = loadbalance.Rebalance(loadbalance.Input{Prev: w.a, Tasks: w.tasks, Ages: w.ages, Config: w.cfg, Loads: l,
		Elapsed: w.cfg.Balance.Interval, State: w.out.State, MembershipOnly: membership})
	w.a = follow(w.t, w.a, w.tasks, w.out)
	w.moved += w.out.Stats.LoadChurn
}

// pass lets an interval go by and holds a round.
func (w *warming) pass() {
	for i := range w.ages {
		if w.ages[i] >= 0 {
			w.ages[i] += w.cfg.Balance.Interval
		}
	}
	w.round(false)
}

// load is that of a task, the mean being 1.
func (w *warming) load(t int) float64 {
	return measure(w.a, w.keys).Task[t] / 1000 * float64(len(w.tasks))
}

// TestWarmUp has one task join. It is given what it is warm enough for and no more
// than a slice above, hottest last, and has its share soon after; all in all little
// more moves than if it had been given everything at once.
func TestWarmUp(t *testing.T) {
	var with, without float64
	for _, n := range []int{4, 10, 20} {
		for _, skew := range []float64{0, .5, .99} {
			t.Run(fmt.Sprintf("tasks=%d,skew=%v", n, skew), func(t *testing.T) {
				at := newWarming(t, n, skew, 10, assignment.NoWarmUp)
				at.join(1)
				w := newWarming(t, n, skew, 10, 30*time.Second)
				w.join(1)
				if x := w.load(n); x <= 0 || x >= at.load(n)/2 {
					t.Errorf("it begins with %.2f of a share, without warming with %.2f", x, at.load(n))
				}
				for range 12 {
					warm := loadbalance.Warmth(w.tasks, w.ages, w.cfg.WarmUp)
					if warm != nil {
						// What it may have, of a share, while the others count in full.
						may := warm[n] * float64(n+1) / (float64(n) + warm[n])
						if x := w.load(n); x > 1.15*may+.01 {
							t.Errorf("after %v it has %.3f of a share, and may have %.3f", w.ages[n], x, may)
						}
						if warm[n] < .5 && w.a.Lookup(w.keys[0].key).Has(n) && skew > .9 {
							t.Errorf("after %v it has the hottest key", w.ages[n])
						}
						said := slices.ContainsFunc(w.out.Decisions, func(d loadbalance.Decision) bool {
							return d.Reason == loadbalance.ReasonWarming && d.To == w.tasks[n].Name
						})
						if !said {
							t.Errorf("after %v no decision says that it warms up", w.ages[n])
						}
					}
					w.pass()
					at.pass()
				}
				if x := w.load(n); x < .9 {
					t.Errorf("after a minute it has %.2f of a share", x)
				}
				with, without = with+w.moved, without+at.moved
			})
		}
	}
	t.Logf("load that moved: %.3f with warming up, %.3f without", with, without)
	if with > 1.1*without {
		t.Errorf("load that moved: %.3f with warming up, %.3f without", with, without)
	}
}

// TestWarmUpHoldsNobody: a task that restarted at once keeps what it had, the slices of a
// dead task go to another at once, and where most are new, or nothing is known of their
// age, it is as if none were.
func TestWarmUpHoldsNobody(t *testing.T) {
	w := newWarming(t, 10, .99, 10, 30*time.Second)
	before := w.load(3)
	w.ages = slices.Repeat([]time.Duration{-1}, 10)
	w.ages[3] = 0
	w.tasks = slices.Clone(w.tasks)
	w.tasks[3].Incarnation++
	w.round(true)
	for range 10 {
		for _, d := range w.out.Decisions {
			if (d.From == "t3" || d.To == "t3") && d.Kind != loadbalance.KindReassign && d.Kind != loadbalance.KindSkip {
				t.Errorf("restarted %v ago: %+v", w.ages[3], d)
			}
		}
		w.pass()
	}
	if x := w.load(3); x < before-.01 || x > before+.01 {
		t.Errorf("who restarted had %.3f of a share and has %.3f", before, x)
	}

	w = newWarming(t, 10, .99, 10, 30*time.Second)
	w.join(2)
	w.tasks = slices.Clone(w.tasks)
	w.tasks[0].State = assignment.TaskDead
	w.round(true)
	for i, r := range w.a.All() {
		for x := range r.All() {
			if x.Name == "t0" {
				t.Fatalf("slice %v is with a dead task", i)
			}
		}
	}
	for _, k := range []int{10, 11} {
		if x := w.load(k); x > .2 {
			t.Errorf("a new task has %.2f of a share from a dead one", x)
		}
	}

	same := func(what string, x, y *warming) {
		for i := range x.tasks {
			if a, b := x.load(i), y.load(i); a != b {
				t.Errorf("%s: task %d has %.3f of a share, and would have %.3f", what, i, a, b)
			}
		}
	}
	most, plain := newWarming(t, 4, .99, 10, 30*time.Second), newWarming(t, 4, .99, 10, assignment.NoWarmUp)
	most.join(5)
	plain.join(5)
	same("most are new", most, plain)
	taken, plain := newWarming(t, 4, .99, 10, 30*time.Second), newWarming(t, 4, .99, 10, assignment.NoWarmUp)
	taken.tasks, plain.tasks = fleet(5), fleet(5)
	taken.ages = slices.Repeat([]time.Duration{-1}, 5)
	taken.round(true)
	plain.round(true)
	same("their ages are not known", taken, plain)
}

// TestJoinOneByOne has the tasks of a job that starts join one after the other while nothing asks
// for anything: each has its share of the keyspace from the round on in which it joins. Where the
// others are not new no more moves than the budget lets.
func TestJoinOneByOne(t *testing.T) {
	for _, tc := range []struct {
		name string
		age  time.Duration // of the others
		all  bool          // at once
	}{{"as a job starts", time.Second, true}, {"later", 10 * time.Minute, false}} {
		t.Run(tc.name, func(t *testing.T) {
			w := idleJob(t, 1, 1, 30*time.Second)
			for n := 2; n <= 8; n++ {
				w.tasks = fleet(n)
				w.ages = make([]time.Duration, n)
				for i := range n - 1 {
					w.ages[i] = tc.age
				}
				w.round(true)
				has := make([]float64, n)
				for s, r := range w.a.All() {
					has[r.Position(0)] += s.Fraction()
				}
				for i, x := range has {
					if tc.all && (x < .8/float64(n) || x > 1.25/float64(n)) {
						t.Errorf("with %d tasks, the %d-th has %.3f of the keyspace", n, i, x)
					}
				}
				if budget := w.cfg.Balance.MoveBudget; !tc.all && w.out.Stats.KeyChurn > budget+1e-9 {
					t.Errorf("with %d tasks, %.3f of the keyspace moves in one round, with a budget of %.3f", n, w.out.Stats.KeyChurn, budget)
				}
			}
		})
	}
}

// TestLastToJoin has tasks join an idle job that begins with a few, all but the last at once: the
// others are even then, and none has more than its share by as much as half a slice. The last must
// own something, and in the end have half of its share, whatever its age and theirs.
func TestLastToJoin(t *testing.T) {
	for _, age := range []time.Duration{time.Second, 10 * time.Minute} {
		for _, warmUp := range []time.Duration{assignment.NoWarmUp, 30 * time.Second} {
			for _, first := range []int{1, 2, 4, 7} {
				for n := first + 2; n <= 64; n++ {
					w := idleJob(t, first, 2, warmUp)
					w.tasks, w.ages = fleet(n-1), slices.Repeat([]time.Duration{age}, n-1)
					for range 12 {
						w.round(true)
					}
					w.tasks, w.ages = fleet(n), append(w.ages, 0)
					has := func() (slices int, share float64) {
						for s, r := range w.a.All() {
							for k := range r.Len() {
								if r.Position(k) == n-1 {
									slices++
									share += s.Fraction() / float64(r.Len())
								}
							}
						}
						return slices, share
					}
					w.round(true)
					what := fmt.Sprintf("%d tasks, %d at first, others %v old, warm-up %v", n, first, age, warmUp)
					if k, _ := has(); k == 0 {
						t.Errorf("%s: the last owns nothing", what)
						continue
					}
					w.ages[n-1] = warmUp
					for range 12 {
						w.round(true)
					}
					if k, x := has(); x < .5/float64(n) {
						t.Errorf("%s: in the end the last has %d slices, %.2f of its share", what, k, x*float64(n))
					}
				}
			}
		}
	}
}
