package loadbalance_test

import (
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// TestFixed plays histories of tasks that come and go under skewed load with fixed
// ranges: each is at its task, and there alone, whenever that runs; the balancer
// keeps to its budget, and to its hands off them.
func TestFixed(t *testing.T) {
	algorithms(t, func(t *testing.T, published bool) {
		for seed := range uint64(60) {
			playFixed(t, published, seed)
		}
	})
}

func playFixed(t *testing.T, published bool, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 40))
	cfg := config(1+rng.IntN(2), 2+rng.IntN(5))
	cfg.Balance.MinSlicesPerTask, cfg.Balance.MaxSlicesPerTask = 4, 12
	keys := zipf(300, 2*rng.Float64(), 1000)
	tasks := fleet(3 + rng.IntN(5))
	var a *assignment.Assignment
	var state *loadbalance.State
	for range 12 {
		for i := range tasks {
			if rng.IntN(12) == 0 {
				tasks[i].State = []assignment.TaskState{assignment.TaskDead, assignment.TaskDraining, assignment.TaskRunning, assignment.TaskRunning}[rng.IntN(4)]
				tasks[i].Incarnation += rng.Uint64N(2)
			}
		}
		in := loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Published: published, State: state, Elapsed: cfg.Balance.Interval, Fixed: drawFixed(rng, tasks, keys),
			MembershipOnly: rng.IntN(4) == 0}
		if a != nil && rng.IntN(6) > 0 {
			in.Loads = measure(a, keys)
		}
		out := loadbalance.Rebalance(in)
		next := follow(t, a, tasks, out)
		if next == a {
			continue // no task runs
		}
		checkFixed(t, seed, in, out, next)
		a, state = next, out.State
	}
}

// drawFixed draws ranges, some of one key, some that touch each other, in order.
func drawFixed(rng *rand.Rand, tasks []assignment.Task, keys []keyLoad) (all []loadbalance.Fixed) {
	at := assignment.SliceKey(rng.Uint64N(2) * rng.Uint64N(1<<61))
	for range rng.IntN(5) {
		end := at + 1 + assignment.SliceKey(rng.Uint64N(2)*rng.Uint64N(1<<60))
		if k := keys[rng.IntN(5)].key; rng.IntN(2) == 0 && k >= at {
			at, end = k, k+1
		}
		if end > assignment.KeyspaceEnd {
			break
		}
		all = append(all, loadbalance.Fixed{Slice: assignment.Slice{Start: at, End: end}, Task: tasks[rng.IntN(len(tasks))].Name})
		at = end + assignment.SliceKey(rng.Uint64N(2)*rng.Uint64N(1<<61))
	}
	return all
}

func checkFixed(t *testing.T, seed uint64, in loadbalance.Input, out loadbalance.Output, next *assignment.Assignment) {
	t.Helper()
	fixed := func(s assignment.Slice) *loadbalance.Fixed {
		for i, f := range in.Fixed {
			for _, x := range in.Tasks {
				if x.Name == f.Task && x.State == assignment.TaskRunning {
					if _, ok := f.Slice.Intersect(s); ok {
						return &in.Fixed[i]
					}
				}
			}
		}
		return nil
	}
	for s, r := range next.All() {
		f := fixed(s)
		switch {
		case f == nil:
		case s.Start < f.Slice.Start || s.End > f.Slice.End:
			t.Fatalf("seed %d: slice %s reaches out of %s, which is fixed", seed, s, f.Slice)
		case r.Len() != 1 || r.At(0).Name != f.Task:
			t.Fatalf("seed %d: slice %s is at %s and %d others, fixed at %s", seed, s, r.At(0).Name, r.Len()-1, f.Task)
		}
	}
	moved, merged := 0., 0.
	for _, d := range out.Decisions {
		switch {
		case d.Reason == loadbalance.ReasonPinned:
			continue
		case d.Reason == loadbalance.ReasonCold:
			merged += d.KeyChurn
		case d.Kind == loadbalance.KindMove || d.Kind == loadbalance.KindEject || d.Kind == loadbalance.KindReplicate && d.Reason != loadbalance.ReasonTooFew:
			moved += d.KeyChurn
		case d.Kind != loadbalance.KindSplit && d.Kind != loadbalance.KindMerge:
			continue
		}
		if f := fixed(d.Slice); f != nil && d.Reason != loadbalance.ReasonTooFew {
			t.Fatalf("seed %d: %+v, though %+v", seed, d, *f)
		}
	}
	if moved > in.Config.Balance.MoveBudget+1e-9 || merged > in.Config.Balance.MergeBudget+1e-9 {
		t.Fatalf("seed %d: moved %g and merged %g of the keyspace", seed, moved, merged)
	}
}

// TestFixedLoadCounts has the balancer work around a hot range: what else its task
// has goes to others.
func TestFixedLoadCounts(t *testing.T) {
	cfg := config(1, 1)
	tasks := fleet(4)
	keys := zipf(2000, 0, 1000)
	hot := assignment.KeyOf("hot")
	keys = append(keys, keyLoad{hot, 250}) // a fifth of all: what one task should have
	fixed := []loadbalance.Fixed{{Slice: assignment.Slice{Start: hot, End: hot + 1}, Task: "t2"}}
	out := loadbalance.Rebalance(loadbalance.Input{Tasks: tasks, Config: cfg, Fixed: fixed})
	a := follow(t, nil, tasks, out)
	for range 40 {
		out = loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Loads: measure(a, keys), Elapsed: cfg.Balance.Interval, State: out.State, Fixed: fixed})
		a = follow(t, a, tasks, out)
	}
	if got := a.Lookup(hot).At(0).Name; got != "t2" {
		t.Errorf("the hot key is at %s", got)
	}
	if got := imbalance(a, keys); got > 1.1 {
		t.Errorf("imbalance %.3f: the balancer does not work around the range", got)
	}
}
