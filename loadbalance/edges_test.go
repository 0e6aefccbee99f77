package loadbalance_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

func TestFirstAssignment(t *testing.T) {
	algorithms(t, func(t *testing.T, published bool) {
		out := loadbalance.Rebalance(loadbalance.Input{Tasks: fleet(4), Config: config(2, 3), Published: published})
		if got := len(out.Placement.Starts); got != 200 || !out.Changed {
			t.Errorf("%d slices, changed %v; want 50 a task", got, out.Changed)
		}
		share := make([]int, 4)
		for i := range out.Placement.Starts {
			o := out.Placement.Range(i)
			if len(o) != 2 {
				t.Fatalf("slice %d has %d owners", i, len(o))
			}
			share[o[0]]++
			share[o[1]]++
		}
		if slices.Max(share) > 101 || slices.Min(share) < 99 {
			t.Errorf("tasks own %v of 400 replicas", share)
		}
	})
}

func TestNobodyToOwn(t *testing.T) {
	algorithms(t, func(t *testing.T, published bool) {
		tasks := fleet(2)
		a := runBy(t, published, config(1, 1), tasks, zipf(100, 1, 100), 2)
		gone := fleet(2)
		gone[0].State, gone[1].State = assignment.TaskDraining, assignment.TaskDead
		for _, now := range [][]assignment.Task{nil, gone} {
			for _, prev := range []*assignment.Assignment{nil, a} {
				out := loadbalance.Rebalance(loadbalance.Input{Prev: prev, Tasks: now, Config: config(1, 1), Published: published})
				if out.Changed || len(out.Placement.Starts) > 0 || out.Stats.Skipped != loadbalance.ReasonNoTask {
					t.Errorf("decided %+v", out.Stats)
				}
			}
		}
	})
}

// TestNewTask checks that a newcomer gets about a fair share, and that only
// about that much moves.
func TestNewTask(t *testing.T) {
	algorithms(t, func(t *testing.T, published bool) {
		for _, membership := range []bool{true, false} {
			tasks := fleet(20)
			keys := zipf(100_000, .5, 1e6)
			a := runBy(t, published, config(1, 1), tasks, keys, 20)
			more := fleet(21)
			out := loadbalance.Rebalance(loadbalance.Input{
				Prev: a, Tasks: more, Config: config(1, 1), Published: published, Loads: measure(a, keys), Elapsed: minute, MembershipOnly: membership,
			})
			next := follow(t, a, more, out)
			l := measure(next, keys)
			if share := l.Task[20] / 1e6 * 21; share < .9 || share > 1.1 {
				t.Errorf("membership only %v: the new task carries %.2f of its fair share", membership, share)
			}
			if c := out.Stats.KeyChurn; c > .07 || membership && c < .03 {
				t.Errorf("membership only %v: %.3f of the keyspace moved", membership, c)
			}
		}
	})
}

// TestDeadTask checks that what a dead task had goes where there is room, and
// nothing else moves.
func TestDeadTask(t *testing.T) {
	algorithms(t, func(t *testing.T, published bool) {
		tasks := fleet(20)
		keys := zipf(100_000, .5, 1e6)
		a := runBy(t, published, config(1, 1), tasks, keys, 20)
		had := 0.
		for s, r := range a.All() {
			if r.At(0).Name == "t7" {
				had += s.Fraction()
			}
		}
		tasks[7].State = assignment.TaskDead
		out := loadbalance.Rebalance(loadbalance.Input{
			Prev: a, Tasks: tasks, Config: config(1, 1), Published: published, Loads: measure(a, keys), MembershipOnly: true,
		})
		if math.Abs(out.Stats.KeyChurn-had) > 1e-9 {
			t.Errorf("%.4f of the keyspace moved, the dead task had %.4f", out.Stats.KeyChurn, had)
		}
		if x := imbalance(follow(t, a, tasks, out), keys); x > 1.1 {
			t.Errorf("imbalance is %.3f", x)
		}
	})
}

// TestShrinkingFleet takes away tasks until fewer are left than a hot slice has
// replicas, and than each must have.
func TestShrinkingFleet(t *testing.T) {
	algorithms(t, func(t *testing.T, published bool) {
		cfg := config(3, 10)
		keys := []keyLoad{{assignment.KeyOf("hot"), 1000}}
		tasks := fleet(12)
		a := runBy(t, published, cfg, tasks, keys, 10)
		var state *loadbalance.State
		for left := 11; left >= 1; left-- {
			tasks[left].State = assignment.TaskDead
			out := loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Published: published, Loads: measure(a, keys), Elapsed: minute, State: state})
			a, state = follow(t, a, tasks, out), out.State
			for s, r := range a.All() {
				if r.Len() < min(3, left) || r.Len() > min(10, left) {
					t.Fatalf("%d tasks left: %v has %d replicas", left, s, r.Len())
				}
			}
		}
	})
}

// TestCapacities checks that load becomes proportional to capacity, within 5 %. With
// one replica a key may be more than any task should carry: it takes one of the largest,
// and no other has more than its share of the rest.
func TestCapacities(t *testing.T) {
	for _, replicas := range []int{1, 10} {
		for _, n := range []int{6, 12, 30} {
			for _, skew := range []float64{.5, .9, 1.2} {
				tasks := fleet(n)
				for i := range tasks {
					tasks[i].Weight = []float64{1, 2, 4}[i%3]
				}
				keys := zipf(20_000, skew, 1e6)
				left, capacity, alone := 1e6, float64(n)/3*7, 0
				for replicas == 1 && keys[alone].rate > 4*left/capacity {
					left, capacity, alone = left-keys[alone].rate, capacity-4, alone+1
				}
				a := run(t, config(1, replicas), tasks, keys, 60)
				var shares []float64
				for i, load := range measure(a, keys).Task {
					shares = append(shares, load/tasks[i].Weight/(left/capacity))
				}
				slices.Sort(shares)
				if low, high := shares[0], shares[n-1-alone]; low < .95 && alone == 0 || high > 1.05 {
					t.Errorf("%d tasks, skew %g, max replicas %d: load by capacity %.3f to %.3f of what it should be, beside %d tasks with a key each",
						n, skew, replicas, low, high, alone)
				}
			}
		}
	}
}

// TestCapacitiesFarApart only asks that nothing breaks.
func TestCapacitiesFarApart(t *testing.T) {
	algorithms(t, func(t *testing.T, published bool) {
		tasks := fleet(6)
		for i, w := range []float64{0, 1000, 1, math.NaN(), -1, math.Inf(1)} {
			tasks[i].Weight = w
		}
		var a *assignment.Assignment
		var out loadbalance.Output
		for range 10 {
			in := loadbalance.Input{Prev: a, Tasks: tasks, Config: config(1, 3), Published: published, State: out.State, Elapsed: minute}
			if a != nil {
				in.Loads = measure(a, zipf(1000, 1, 1000))
			}
			out = loadbalance.Rebalance(in)
			sane := slices.Clone(tasks)
			for i := range sane {
				sane[i].Weight = 1
			}
			a = follow(t, a, sane, out)
		}
	})
}

// TestBalancedStays checks that a round on a balanced job does nothing at all.
func TestBalancedStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "tasks")
		cfg := config(1, rapid.IntRange(1, 10).Draw(t, "max"))
		tasks := fleet(n)
		out := loadbalance.Rebalance(loadbalance.Input{Tasks: tasks, Config: cfg})
		a := follow(t, nil, tasks, out)
		l := &loadbalance.Loads{Task: make([]float64, n)}
		for i := range a.NumSlices() {
			l.Slice = append(l.Slice, 100*a.Slice(i).Fraction())
		}
		for range 5 {
			out = loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Loads: l, Elapsed: minute, State: out.State})
			if out.Changed || out.Stats.KeyChurn > 0 {
				t.Fatalf("a balanced job changed: %+v", out.Decisions)
			}
		}
	})
}

func TestLoadThatIsNone(t *testing.T) {
	algorithms(t, func(t *testing.T, published bool) {
		for name, rate := range map[string]float64{"zero": 0, "NaN": math.NaN(), "negative": -5, "infinite": math.Inf(1)} {
			tasks := fleet(3)
			cfg := config(1, 10)
			a := runBy(t, published, cfg, tasks, nil, 0)
			l := &loadbalance.Loads{Slice: slices.Repeat([]float64{rate}, a.NumSlices()), Task: make([]float64, 3)}
			out := loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Published: published, Loads: l, Elapsed: minute})
			if out.Changed || out.Stats.Skipped != loadbalance.ReasonNoLoad {
				t.Errorf("%s: changed %v, skipped %q", name, out.Changed, out.Stats.Skipped)
			}
		}
	})
}

// TestSameMeasurementAgain checks that what was measured once counts once.
func TestSameMeasurementAgain(t *testing.T) {
	tasks := fleet(4)
	cfg := config(1, 1)
	a := run(t, cfg, tasks, nil, 0)
	even, skewed := measure(a, zipf(10_000, 0, 1e6)), measure(a, zipf(10_000, .8, 1e6))
	out := loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Loads: even})
	if out.Stats.Skipped != "" {
		t.Fatalf("the first measurement did not count: %s", out.Stats.Skipped)
	}
	again := loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Loads: skewed, State: out.State})
	if again.Changed {
		t.Error("loads that are no new measurement changed something")
	}
	if out = loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Loads: skewed, State: out.State, Elapsed: minute}); !out.Changed {
		t.Error("a new measurement changed nothing")
	}
}

func TestIdleCPU(t *testing.T) {
	algorithms(t, func(t *testing.T, published bool) {
		tasks := fleet(4)
		cfg := config(1, 10)
		cfg.LoadMetric = assignment.LoadCPU
		keys := zipf(1000, 1.2, 1)
		a := runBy(t, published, cfg, tasks, nil, 0)
		for _, busy := range []float64{.2, .3} {
			l := measure(a, keys)
			l.CPU = []float64{.1, busy, .1, .1}
			out := loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Published: published, Loads: l, Elapsed: minute})
			if out.Changed != (busy > .25) {
				t.Errorf("hottest task at %g: changed %v", busy, out.Changed)
			}
		}
	})
}

// TestShed: what leaves a task that refuses requests says so, and such a task is not idle,
// however little CPU it uses.
func TestShed(t *testing.T) {
	tasks := fleet(4)
	cfg := config(1, 10)
	cfg.LoadMetric = assignment.LoadCPU
	keys := zipf(1000, 1.2, 1)
	a := run(t, cfg, tasks, nil, 0)
	l := measure(a, keys)
	hottest := 0
	for i := range l.Task {
		if l.Task[i] > l.Task[hottest] {
			hottest = i
		}
	}
	l.CPU = []float64{.1, .1, .1, .1}
	reasons := func() map[loadbalance.Reason]int {
		n := map[loadbalance.Reason]int{}
		for _, d := range loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Loads: l, Elapsed: minute}).Decisions {
			if d.From == a.Task(hottest).Name {
				n[d.Reason]++
			}
		}
		return n
	}
	if n := reasons(); len(n) > 0 {
		t.Errorf("idle tasks: %v", n)
	}
	l.Shed = make([]float64, 4)
	if n := reasons(); len(n) > 0 {
		t.Errorf("idle tasks that refuse nothing: %v", n)
	}
	l.Shed[hottest] = 10
	if n := reasons(); n[loadbalance.ReasonShed] == 0 || n[loadbalance.ReasonHotTask] > 0 {
		t.Errorf("one refuses requests: %v", n)
	}
	l.Shed[hottest], l.Shed[(hottest+1)%4] = 0, 10
	if n := reasons(); n[loadbalance.ReasonShed] > 0 || n[loadbalance.ReasonHotTask] == 0 {
		t.Errorf("another refuses requests: %v", n)
	}
}

// TestHotKeyIsCutOut checks that a key which is known to be hot is replicated
// alone, in the round in which it is first seen.
func TestHotKeyIsCutOut(t *testing.T) {
	tasks := fleet(10)
	cfg := config(1, 10)
	keys := zipf(10_000, 0, 600)
	hot := keyLoad{assignment.KeyOf("hot"), 400}
	keys = append(keys, hot)
	a := run(t, cfg, tasks, nil, 0)
	l := measure(a, keys)
	l.Hot = []assignment.HotKey{{Key: hot.key, Rate: hot.rate}}
	out := loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Loads: l, Elapsed: minute})
	a = follow(t, a, tasks, out)
	i := a.Find(hot.key)
	if s := a.Slice(i); s.Width() != 1 || a.Replicas(i).Len() < 4 {
		t.Errorf("the hot key lies in %v with %d replicas", s, a.Replicas(i).Len())
	}
	if x := imbalance(a, keys); x > 1.1 {
		t.Errorf("imbalance is %.3f after one round", x)
	}
}

func ExampleRebalance() {
	tasks := fleet(3)
	cfg := assignment.JobConfig{Name: "cache"}.WithDefaults()
	first := loadbalance.Rebalance(loadbalance.Input{Tasks: tasks, Config: cfg})
	fmt.Println(first.Stats.Slices, "slices")

	a, err := assignment.Successor(nil, assignment.Header{Job: "cache", Generation: 1}, tasks, first.Placement)
	if err != nil {
		fmt.Println(err)
		return
	}
	// What the tasks report, later on, becomes the loads of the next round.
	out := loadbalance.Rebalance(loadbalance.Input{
		Prev: a, Tasks: tasks, Config: cfg, State: first.State,
		Loads: loadbalance.Measure(a, nil), Elapsed: cfg.Balance.Interval,
	})
	fmt.Println("changed:", out.Changed, "because of", out.Stats.Skipped)
	// Output:
	// 150 slices
	// changed: false because of no load known
}
