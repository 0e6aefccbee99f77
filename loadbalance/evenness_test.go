package loadbalance_test

import (
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// A task that carries too much owns a key together with one that has the room to own it
// alone. To take the replica away would move nothing, but the key's load would then lie
// on one task, and the replica be wanted again when that has more: others get one too.
func TestReplicasStay(t *testing.T) {
	const n, hot = 10, assignment.SliceKey(1000)
	cfg, tasks := config(1, 10), fleet(n)
	// Task i owns what lies from i to i+1 tenths of the keyspace, but for the hot key.
	p := assignment.Placement{Offsets: []uint32{0}}
	add := func(at assignment.SliceKey, owners ...uint32) {
		p.Starts, p.Owners = append(p.Starts, at), append(p.Owners, owners...)
		p.Offsets = append(p.Offsets, uint32(len(p.Owners)))
	}
	starts := assignment.Equal(n)
	var keys []keyLoad
	for i, at := range starts {
		add(at, uint32(i))
		rate := 1057.0
		switch {
		case i == 0:
			rate = 1150 - 300
		case i == 1:
			rate = 700 - 300
		case i == 2:
			rate = 750
		}
		keys = append(keys, keyLoad{at + 2*hot, rate})
		if i == 0 {
			add(hot, 0, 1)
			add(hot+1, 0)
		}
	}
	keys = append(keys, keyLoad{hot, 600})
	a := follow(t, nil, tasks, loadbalance.Output{Placement: p})
	out := loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Loads: measure(a, keys), Elapsed: cfg.Balance.Interval})
	for _, d := range out.Decisions {
		if d.Slice.Start == hot && d.Slice.End == hot+1 {
			if d.Kind != loadbalance.KindReplicate {
				t.Errorf("the hot key: %+v", d)
			}
			return
		}
	}
	t.Errorf("nothing is done about the hot key: %+v", out.Decisions)
}
