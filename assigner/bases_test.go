package assigner

import (
	"testing"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// wantBase asks for an older assignment, and returns the answer.
func (d *raw) wantBase(job string, g assignment.Generation, store, sum uint64) (a *assignment.Assignment) {
	d.t.Helper()
	d.mu.Lock()
	before := len(d.bases)
	d.mu.Unlock()
	d.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_WantBase{WantBase: &slicerv1.WantBase{
		Job: job, Generation: int64(g), StoreId: store, Checksum: sum,
	}}})
	d.wait("an answer about a base", func() bool {
		if len(d.bases) > before {
			a = d.bases[before]
		}
		return len(d.bases) > before
	})
	return a
}

// An older assignment is given as long as it is kept: here, or, after a restart of
// the assigner, in the store. What is not had is said to be not had.
func TestWantBase(t *testing.T) {
	t.Parallel()
	st := openPebble(t)
	n := start(t, Config{Stores: []NamedStore{{Backend: st}}})
	n.put(&slicerv1.JobConfig{Name: "web"})
	d := n.attach("d1")
	d.preferred("web", "a1")
	d.want(&slicerv1.Want{Job: "web"})
	d.reports("web", true, task("t1", 1))
	first := d.holds("web", "one task", ownedBy("t1"))
	d.reports("web", false, task("t1", 1), task("t2", 2))
	d.holds("web", "two tasks", ownedBy("t1", "t2"))
	check := func(d *raw, where string) {
		t.Helper()
		if a := d.wantBase("web", first.Generation(), first.StoreID(), first.Checksum()); a == nil || a.Checksum() != first.Checksum() {
			t.Errorf("%s: the older assignment is not given", where)
		}
		if a := d.wantBase("web", first.Generation(), first.StoreID(), 0); a == nil || a.Checksum() != first.Checksum() {
			t.Errorf("%s: the older assignment is not given by its number alone", where)
		}
		for what, a := range map[string]*assignment.Assignment{
			"checksum":   d.wantBase("web", first.Generation(), first.StoreID(), first.Checksum()+1),
			"generation": d.wantBase("web", first.Generation()-1, first.StoreID(), first.Checksum()),
			"store":      d.wantBase("web", first.Generation(), first.StoreID()+1, first.Checksum()),
			"job":        d.wantBase("nowhere", first.Generation(), first.StoreID(), first.Checksum()),
		} {
			if a != nil {
				t.Errorf("%s: something is given that has another %s", where, what)
			}
		}
	}
	check(d, "kept here")
	n.stop()

	n = start(t, Config{Stores: []NamedStore{{Backend: st}}})
	d = n.attach("d1")
	d.preferred("web", "a1")
	d.want(&slicerv1.Want{Job: "web"})
	d.holds("web", "two tasks", ownedBy("t1", "t2"))
	check(d, "kept in the store")
}
