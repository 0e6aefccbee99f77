package assigner

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assigner/preference"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Two assigners on one store: one is preferred, both serve; when it goes the
// other carries on from what is stored.
func TestTakeover(t *testing.T) {
	t.Parallel()
	st := openPebble(t)
	stores := []NamedStore{{Backend: st}}
	nodes := map[string]*node{
		"x": start(t, Config{ID: "x", Stores: stores}),
		"y": start(t, Config{ID: "y", Stores: stores}),
	}
	c, _ := preference.Choose([]store.Candidate{{ID: "x"}, {ID: "y"}}, "job", "")
	first, second := nodes[c.ID], nodes["x"]
	if c.ID == "x" {
		second = nodes["y"]
	}
	first.put(&slicerv1.JobConfig{Name: "job"})
	d1, d2 := first.attach("d"), second.attach("d")
	d1.preferred("job", first.cfg.ID)
	d2.preferred("job", first.cfg.ID)
	d1.reports("job", true, task("t1", 1), task("t2", 1))
	d1.want(&slicerv1.Want{Job: "job"})
	d2.want(&slicerv1.Want{Job: "job"})
	a := d1.holds("job", "both", ownedBy("t1", "t2"))
	b := d2.holds("job", "both, from the other one", ownedBy("t1", "t2"))
	if a.Checksum() != b.Checksum() {
		t.Errorf("generation %d here, %d there", a.Generation(), b.Generation())
	}
	if i := second.inspect("job"); i.Preferred || i.Holding == "" || i.Generation != int64(a.Generation()) {
		t.Errorf("the other one: preferred %v, holding %q, generation %d", i.Preferred, i.Holding, i.Generation)
	}
	_, err := second.admin.DrainTask(t.Context(), &slicerv1.DrainTaskRequest{Job: "job", Task: "t1"})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a drain at the other one: %v", err)
	}
	if _, err := first.admin.DrainTask(t.Context(), &slicerv1.DrainTaskRequest{Job: "job", Task: "t1"}); err != nil {
		t.Fatal(err)
	}
	d2.holds("job", "t2", ownedBy("t2"))
	first.stop()
	d2.preferred("job", second.cfg.ID)
	d2.reports("job", true, task("t1", 1), task("t2", 1), task("t3", 1))
	// It drains still: the store says so.
	c2 := d2.holds("job", "t2 and t3", ownedBy("t2", "t3"))
	if pos, ok := c2.Position("t1"); !ok || c2.Task(pos).State != assignment.TaskDraining {
		t.Error("the drain is forgotten")
	}
	if _, err := second.admin.DrainTask(t.Context(), &slicerv1.DrainTaskRequest{Job: "job", Task: "t1", Undo: true}); err != nil {
		t.Fatal(err)
	}
	d2.holds("job", "all", ownedBy("t1", "t2", "t3"))
}

// A job says which store is its own; what one store does is nothing to the other.
func TestSeveralStores(t *testing.T) {
	t.Parallel()
	main, eu := openPebble(t), openPebble(t)
	stuck := newFaulty(eu)
	n := start(t, Config{Stores: []NamedStore{{Name: "main", Backend: main}, {Name: "eu", Backend: stuck}}})
	n.put(&slicerv1.JobConfig{Name: "here"})
	n.put(&slicerv1.JobConfig{Name: "there", Store: "eu"})
	for name, want := range map[string]codes.Code{"nowhere": codes.InvalidArgument, "eu": codes.FailedPrecondition} {
		_, err := n.admin.PutJob(t.Context(), &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "here", Store: name}})
		if status.Code(err) != want {
			t.Errorf("store %s: %v, want %s", name, err, want)
		}
	}
	if _, err := eu.GetJob(t.Context(), "there"); err != nil {
		t.Error(err)
	}
	list, err := n.admin.ListJobs(t.Context(), &slicerv1.ListJobsRequest{})
	if err != nil || len(list.Jobs) != 2 || list.Jobs[0].Config.Name != "here" {
		t.Errorf("list %v, %v", list, err)
	}
	d := n.attach("d")
	d.preferred("here", "a1")
	d.preferred("there", "a1")
	for _, job := range []string{"here", "there"} {
		d.want(&slicerv1.Want{Job: job})
		d.reports(job, true, task("t1", 1))
		d.holds(job, "t1", ownedBy("t1"))
	}
	// One hangs: the other one's jobs do not notice.
	stuck.hang(true)
	d.reports("there", false, task("t1", 1), task("t2", 1))
	d.reports("here", false, task("t1", 1), task("t2", 1))
	d.holds("here", "t1 and t2", ownedBy("t1", "t2"))
	d.want(&slicerv1.Want{Job: "there"})
	d.holds("there", "t1 still", ownedBy("t1"))
	if _, err := n.admin.GetJob(t.Context(), &slicerv1.GetJobRequest{Name: "here"}); err != nil {
		t.Error(err)
	}
	n.put(&slicerv1.JobConfig{Name: "here", MaxReplicas: 3})
	// Whether there is such a job in the store that hangs is not known.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := n.admin.PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "new"}}); err == nil {
		t.Error("a job is made that another store may have")
	}
	// In this order: the assigner may not know yet that the caller has given up.
	stuck.fail(store.ErrUnavailable)
	stuck.hang(false)
	list, err = n.admin.ListJobs(t.Context(), &slicerv1.ListJobsRequest{})
	if err != nil || len(list.Jobs) != 1 || list.Jobs[0].Config.Name != "here" || !slices.Equal(list.Unanswered, []string{"eu"}) {
		t.Errorf("list without a store %v, %v", list, err)
	}
	stuck.fail(nil)
	d.holds("there", "t1 and t2 at last", ownedBy("t1", "t2"))
}
