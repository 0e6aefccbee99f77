package loadbalance_test

import (
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// Where few keys carry everything, it is the keys that move and not the slices
// around them: shifts of popularity are followed without moving the keyspace.
func TestKeysMoveAlone(t *testing.T) {
	const shifts, every, perSecond, seed = 10, 12, 1500, 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	cfg, tasks := config(1, 10), fleet(10)
	keys := zipf(100, 1.5, perSecond)
	seconds := cfg.Balance.Interval.Seconds()
	out := loadbalance.Rebalance(loadbalance.Input{Tasks: tasks, Config: cfg})
	a := follow(t, nil, tasks, out)
	total := 0.0
	for shift := range shifts {
		rng.Shuffle(len(keys), func(i, j int) { keys[i].key, keys[j].key = keys[j].key, keys[i].key })
		for range every {
			var counted []keyLoad
			for _, k := range keys {
				counted = append(counted, keyLoad{k.key, poisson(rng, k.rate*seconds) / seconds})
			}
			loads := measure(a, counted)
			for _, k := range counted {
				if k.rate > 0 {
					loads.Hot = append(loads.Hot, assignment.HotKey{Key: k.key, Rate: k.rate})
				}
			}
			out = loadbalance.Rebalance(loadbalance.Input{
				Prev: a, Tasks: tasks, Config: cfg, Loads: loads, Elapsed: cfg.Balance.Interval, State: out.State,
			})
			a = follow(t, a, tasks, out)
			if shift > 0 {
				total += out.Stats.KeyChurn
			}
		}
		if x := imbalance(a, keys); x > 1.15 {
			t.Errorf("imbalance is %.3f a minute after shift %d", x, shift)
		}
		if n := a.NumSlices(); n > 150*len(tasks) {
			t.Errorf("%d slices", n)
		}
	}
	if perShift := total / (shifts - 1); perShift > .01 {
		t.Errorf("%.3f %% of the keyspace move at a shift of keys", 100*perShift)
	}
	t.Logf("%.3f %% of the keyspace a shift", 100*total/(shifts-1))
}
