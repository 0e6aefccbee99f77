package loadbalance_test

import (
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// Few requests come, most of them in a burst on a key never seen before, and one
// key that may have no replicas has two tasks' load in every round. Moving what
// bursts would be churn for nothing, but the task of the key that stays gives away
// what lies beside it: there the next burst would hurt most.
func TestSteadyKeyGetsRoom(t *testing.T) {
	const n, rounds, seed = 10, 120, 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	cfg, tasks := config(1, 1), fleet(n)
	seconds := cfg.Balance.Interval.Seconds()
	stays := assignment.SliceKey(rng.Uint64() >> 1)
	out := loadbalance.Rebalance(loadbalance.Input{Tasks: tasks, Config: cfg})
	a := follow(t, nil, tasks, out)
	churn := 0.0
	for range rounds {
		counted := []keyLoad{{stays, 20 / seconds}, {assignment.SliceKey(rng.Uint64() >> 1), 40 / seconds}}
		for range 40 {
			counted = append(counted, keyLoad{assignment.SliceKey(rng.Uint64() >> 1), 1 / seconds})
		}
		loads := measure(a, counted)
		for _, k := range counted[:2] {
			loads.Hot = append(loads.Hot, assignment.HotKey{Key: k.key, Rate: k.rate})
		}
		out = loadbalance.Rebalance(loadbalance.Input{
			Prev: a, Tasks: tasks, Config: cfg, Loads: loads, Elapsed: cfg.Balance.Interval, State: out.State,
		})
		a = follow(t, a, tasks, out)
		churn += out.Stats.KeyChurn
	}
	width, owner := 0.0, a.Lookup(stays).Position(0)
	for i := range a.NumSlices() {
		if a.Replicas(i).Has(owner) {
			width += a.Slice(i).Fraction()
		}
	}
	t.Logf("the task of the key that stays has %.4f of the keyspace, churn %.5f a round", width, churn/rounds)
	if width > .5/n {
		t.Errorf("the task of the key that stays has %.4f of the keyspace besides", width)
	}
	if churn/rounds > .09*.025+.0005 {
		t.Errorf("%.4f of the keyspace moved a round", churn/rounds)
	}
}
