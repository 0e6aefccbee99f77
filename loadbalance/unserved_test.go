package loadbalance_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// played plays rounds of 5 s with tasks that can each carry so much, and serve no more, and
// tells after each what is asked of each task. Rates are measured with some noise, and told as tell
// changes them, if it is not nil.
func played(t *testing.T, keys []keyLoad, can func(round, task int) float64, tell func(round int, a *assignment.Assignment, l *loadbalance.Loads), rounds int, look func(round int, asked []float64, out loadbalance.Output)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	cfg := config(1, 1)
	cfg.Balance.Interval = 5 * time.Second
	tasks := fleet(4)
	out := loadbalance.Rebalance(loadbalance.Input{Tasks: tasks, Config: cfg})
	a := follow(t, nil, tasks, out)
	for round := range rounds {
		noisy := make([]keyLoad, len(keys))
		for i, k := range keys {
			noisy[i] = keyLoad{k.key, k.rate * (1 + .1*rng.NormFloat64())}
		}
		l := measure(a, noisy)
		l.Unserved = make([]float64, len(tasks))
		for i := range tasks {
			// Demand counts for ten times what is served at most.
			if served := min(l.Task[i], can(round, i)); served < l.Task[i] {
				l.Unserved[i] = min(l.Task[i]-served, 9*served)
				seen := (served + l.Unserved[i]) / l.Task[i]
				for s := range a.NumSlices() {
					if a.Replicas(s).Has(i) {
						l.Slice[s] *= seen
					}
				}
				l.Task[i] *= seen
			}
		}
		if tell != nil {
			tell(round, a, l)
		}
		out = loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Loads: l, Elapsed: cfg.Balance.Interval, State: out.State})
		a = follow(t, a, tasks, out)
		look(round, measure(a, keys).Task, out)
	}
}

func evenKeys() (keys []keyLoad) {
	for i := range 4000 {
		keys = append(keys, keyLoad{assignment.SliceKey(i) * (assignment.KeyspaceEnd / 4000), .025})
	}
	return keys
}

// TestUnserved: a task that becomes 20 times as slow as others gives its slices away within 30 s,
// and gets them back when it is as fast again.
func TestUnserved(t *testing.T) {
	const slow, mended = 60, 180 // rounds
	can := func(round, task int) float64 {
		if task == 1 && round >= slow && round < mended {
			return 2.5
		}
		return 50
	}
	least := 25.
	played(t, evenKeys(), can, nil, mended+240, func(round int, asked []float64, _ loadbalance.Output) {
		if round < slow && (asked[1] < 23 || asked[1] > 27) {
			t.Errorf("round %d, before: it is asked for %.1f of 100", round, asked[1])
		}
		if round == slow+5 {
			t.Logf("30 s later it is asked for %.1f", asked[1])
		}
		if round >= slow+5 && round < mended && asked[1] > 5 {
			t.Errorf("round %d: it is asked for %.1f, and can serve 2.5", round, asked[1])
		}
		least = min(least, asked[1])
		if round == mended+239 {
			t.Logf("least %.1f; 20 minutes after it is mended %.1f", least, asked[1])
			if asked[1] < 20 {
				t.Error("it has not got its slices back")
			}
		}
	})
}

// TestUnservedOfMore: a task is told to have left most of what its slices were asked for unserved, in a
// window in which it served as much as usual of a slice that has departed since. It keeps its slices.
func TestUnservedOfMore(t *testing.T) {
	tell := func(round int, _ *assignment.Assignment, l *loadbalance.Loads) {
		if round == 60 {
			l.Unserved[1] = .9 * l.Task[1]
			l.All = slices.Clone(l.Task)
			l.All[1] *= 1.9
		}
	}
	played(t, evenKeys(), func(int, int) float64 { return 50 }, tell, 70, func(round int, asked []float64, _ loadbalance.Output) {
		if round >= 60 && asked[1] < 20 {
			t.Errorf("round %d: it is asked for %.1f, and can serve 50", round, asked[1])
		}
	})
}

// TestServesMore: a task that was taken to carry half of what others do, and then serves nearly as much
// as they for some rounds, as its keys are asked for more, is given as much as they within a minute.
func TestServesMore(t *testing.T) {
	tell := func(round int, a *assignment.Assignment, l *loadbalance.Loads) {
		switch {
		case round == 60:
			l.Unserved[1] = .5 * l.Task[1]
		case round > 63 && round < 70:
			l.Task[1] *= 1.8
			for s := range a.NumSlices() {
				if a.Replicas(s).Has(1) {
					l.Slice[s] *= 1.8
				}
			}
		}
	}
	played(t, evenKeys(), func(int, int) float64 { return 50 }, tell, 82, func(round int, asked []float64, _ loadbalance.Output) {
		if round == 81 && asked[1] < 22 {
			t.Errorf("it is asked for %.1f, and can serve 50", asked[1])
		}
	})
}

// TestNothingServed: a task that has served nothing once, of all that it was asked for, is given
// slices again.
func TestNothingServed(t *testing.T) {
	tell := func(round int, _ *assignment.Assignment, l *loadbalance.Loads) {
		if round == 60 {
			l.Unserved[1] = l.Task[1]
		}
	}
	played(t, evenKeys(), func(int, int) float64 { return 50 }, tell, 300, func(round int, asked []float64, _ loadbalance.Output) {
		if round == 299 && asked[1] < 20 {
			t.Errorf("20 minutes later it is asked for %.1f, and can serve 50", asked[1])
		}
	})
}

// TestAllUnserved: where all tasks are asked for more than they can carry nothing moves for that.
func TestAllUnserved(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	can := func(round, _ int) float64 {
		if round < 30 {
			return 50
		}
		return 10 * (1 + .05*rng.NormFloat64())
	}
	churn := map[bool]float64{}
	played(t, evenKeys(), can, nil, 90, func(round int, asked []float64, out loadbalance.Output) {
		churn[round >= 30] += out.Stats.KeyChurn
		for i, v := range asked {
			if round > 10 && (v < 20 || v > 30) {
				t.Errorf("round %d: task %d is asked for %.1f", round, i, v)
			}
		}
	})
	t.Logf("keys moved: %.3f before, %.3f while all are asked for too much", churn[false], churn[true])
	if churn[true] > .1 {
		t.Error("too much moves")
	}
}
