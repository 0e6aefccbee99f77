package assigner

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// together reports whether all are in the newest stored generation.
func together(g assignment.Generation, ps ...*part) func() bool {
	return func() bool {
		for _, p := range ps {
			if p.in() != g {
				return false
			}
		}
		return true
	}
}

func TestConsistentChange(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		begun := time.Now()
		clock := func() time.Duration { return time.Since(begun) }
		st := openPebble(t)
		leases := openLeases(t, st)
		n := start(Config{Stores: []NamedStore{{Backend: st, Leases: leases}}})
		n.put(consistentJob())
		d := n.attach("d1")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		t1, t2, t3 := task("t1", 1), task("t2", 1), task("t3", 1)
		p1, p2 := joinAs(t, st, leases, t1, time.Second, clock), joinAs(t, st, leases, t2, time.Second, clock)
		j := newJudge(t)
		j.add(p1, p2)
		j.begin(time.Millisecond)
		d.reports("job", true, t1, t2)
		a := d.holds("job", "t1 and t2", ownedBy("t1", "t2"))
		eventually(t, "both believe", together(a.Generation(), p1, p2))
		p3 := joinAs(t, st, leases, t3, time.Second, clock)
		j.add(p3)
		d.reports("job", false, t3)
		b := d.holds("job", "t3", ownedBy("t1", "t2", "t3"))
		eventually(t, "all three believe", together(b.Generation(), p1, p2, p3))
		d.beat(6, t1, t2, t3)
		i := n.inspect("job")
		if c := i.Consistency; c == nil || !c.Leading || !c.GuardOpen || c.Guard != i.Generation || c.BridgeTo != 0 || c.GuardReaders != 3 || c.Step != "" || c.Error != "" {
			t.Errorf("consistency %v", i.Consistency)
		}
		if i.Holding != "" {
			t.Errorf("holding %q", i.Holding)
		}
		j.end()
	})
}
