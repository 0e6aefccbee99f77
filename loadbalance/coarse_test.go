package loadbalance_test

import (
	"testing"

	"github.com/slicer-project/slicer/loadbalance"
)

// A job whose first task came alone has few slices, each wider than the move budget.
// Those that come later get their share all the same, whether or not a load is known.
func TestNewcomersToAFewWideSlices(t *testing.T) {
	cfg, tasks := config(1, 1), fleet(8)
	cfg.Balance.MinSlicesPerTask, cfg.Balance.MaxSlicesPerTask = 4, 12
	for _, loaded := range []bool{false, true} {
		out := loadbalance.Rebalance(loadbalance.Input{Tasks: tasks[:1], Config: cfg})
		a := follow(t, nil, tasks[:1], out)
		var owners map[string]bool
		for range 20 {
			in := loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, State: out.State, MembershipOnly: !loaded}
			if loaded {
				in.Loads, in.Elapsed = measure(a, zipf(10000, .5, 1000)), cfg.Balance.Interval
			}
			out = loadbalance.Rebalance(in)
			if k := out.Stats.KeyChurn; k > cfg.Balance.MoveBudget+cfg.Balance.MergeBudget {
				t.Errorf("a round moves %.3f of the keyspace", k)
			}
			a = follow(t, a, tasks, out)
			owners = map[string]bool{}
			for _, r := range a.All() {
				owners[r.At(0).Name] = true
			}
		}
		if len(owners) != len(tasks) {
			t.Errorf("with load %t: %d of %d tasks own something", loaded, len(owners), len(tasks))
		}
		if n := a.NumSlices(); n > 12*len(tasks) {
			t.Errorf("with load %t: %d slices", loaded, n)
		}
	}
}
