package loadbalance_test

import (
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/loadbalance"
)

// rest is the imbalance at which a job with keys of exactly known load comes to rest,
// and what it cannot go below.
func rest(t *testing.T, published bool, most int, weights []float64, keys []keyLoad) (imbalanced, floor float64) {
	t.Helper()
	cfg, tasks := config(1, most), fleet(len(weights))
	for i := range tasks {
		tasks[i].Weight = weights[i]
	}
	out := loadbalance.Rebalance(loadbalance.Input{Tasks: tasks, Config: cfg, Published: published})
	a := follow(t, nil, tasks, out)
	for range 60 {
		l := measure(a, keys)
		for _, k := range keys[:30] {
			l.Hot = append(l.Hot, assignment.HotKey{Key: k.key, Rate: k.rate})
		}
		out = loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Published: published, Loads: l, Elapsed: cfg.Balance.Interval, State: out.State})
		a = follow(t, a, tasks, out)
	}
	return imbalance(a, keys), out.Stats.Floor
}

// oneHot is a key with a share of the load, and many with the others'.
func oneHot(share float64) []keyLoad {
	return append([]keyLoad{{assignment.KeyOf("hot"), 1000 * share}}, zipf(3000, .3, 1000*(1-share))...)
}

// TestHotKeyOnLargeTasks has few large tasks hold what many small ones could not.
func TestHotKeyOnLargeTasks(t *testing.T) {
	for _, c := range []struct {
		weights []float64
		most    int
		share   float64
	}{
		{[]float64{4, 1, 4, 2, 1, 1, 4, 1}, 5, .32},
		{[]float64{16, 16, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 10, .35},
		{[]float64{4, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 2, .22},
		{[]float64{8, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 3, .25},
		{[]float64{8, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1, .25},
		{[]float64{2, 1, 2, 2, 1, 1}, 3, .45},
		{[]float64{4, 4, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1}, 4, .2},
	} {
		keys := oneHot(c.share)
		weighted, floor := rest(t, false, c.most, c.weights, keys)
		published, _ := rest(t, true, c.most, c.weights, keys)
		t.Logf("capacities %g, %d replicas, %g of the load on a key: weighted-move %.3f, published %.3f, at least %.3f", c.weights, c.most, c.share, weighted, published, floor)
		if weighted > 1.03*floor+.01 {
			t.Error("the tasks stay uneven")
		}
	}
}

// TestUnevenFleets compares both algorithms at rest on fleets of any capacities.
// Weighted-move rests within its band.
func TestUnevenFleets(t *testing.T) {
	fleets := uint64(seedtest.Cases(40))
	seed := seedtest.Seed(t)
	worse, better := 0, 0
	for i := range fleets {
		rng := rand.New(rand.NewPCG(seed, i))
		weights := make([]float64, 6+rng.IntN(10))
		for i := range weights {
			weights[i] = []float64{1, 1, 1, 2, 4}[rng.IntN(5)]
		}
		most := []int{1, 2, 3, 5, 10}[rng.IntN(5)]
		keys := zipf(300, .8+rng.Float64(), 1000)
		weighted, floor := rest(t, false, most, weights, keys)
		published, _ := rest(t, true, most, weights, keys)
		within := 1.03*floor + .01
		switch {
		case weighted > max(published+.01, within):
			worse++
			t.Logf("%d: capacities %g, %d replicas, %.2f of the load on a key: weighted-move %.3f, published %.3f, at least %.3f", i, weights, most, keys[0].rate/1000, weighted, published, floor)
		case published > max(weighted+.01, within):
			better++
		}
	}
	t.Logf("of %d fleets weighted-move is worse on %d, and better on %d", fleets, worse, better)
	if worse > 1 {
		t.Error("weighted-move is worse than published")
	}
}
