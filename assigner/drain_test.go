package assigner

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// sealed is a store that takes orders, and while it is sealed no assignment.
type sealed struct {
	store.Backend
	on atomic.Bool
}

func (s *sealed) Commit(ctx context.Context, c store.Commit) error {
	if s.on.Load() {
		return store.ErrUnavailable
	}
	return s.Backend.Commit(ctx, c)
}

// A drain that cannot be stored is answered before its caller gives up, is taken back,
// and stands in the history.
func TestDrainTakenBack(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		st := &sealed{Backend: openPebble(t)}
		n := start(Config{Stores: []NamedStore{{Backend: st}}})
		n.put(&slicerv1.JobConfig{Name: "job"})
		d := n.attach("d")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		t1, t2 := task("t1", 1), task("t2", 1)
		d.reports("job", true, t1, t2)
		d.holds("job", "t1 and t2", ownedBy("t1", "t2"))
		st.on.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := n.admin.DrainTask(ctx, &slicerv1.DrainTaskRequest{Job: "job", Task: "t1", Who: "ada"})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(status.Convert(err).Message(), "job job: drain t1: not possible now, nothing has changed: store failing") {
			t.Errorf("drain: %v", err)
		}
		if after := time.Since(begun); after >= 4*time.Second { // of virtual time
			t.Errorf("answered after %s", after)
		}
		st.on.Store(false)
		d.beat(5, t1, t2)
		d.holds("job", "both", ownedBy("t1", "t2"))
		h, err := n.admin.GetHistory(t.Context(), &slicerv1.GetHistoryRequest{Job: "job"})
		if err != nil {
			t.Fatal(err)
		}
		noted := false
		for _, e := range h.Entries {
			noted = noted || e.Action == "take back: drain t1" && e.Stamp.GetWho() == "ada" && strings.HasPrefix(e.Stamp.GetWhy(), "store failing")
		}
		if !noted {
			t.Errorf("not in the history: %v", h.Entries)
		}
	})
}

// A drain that is stored by the last look at it is done, though its time is over and
// its caller gone.
func TestDrainStoredAtTheEnd(t *testing.T) {
	t.Parallel()
	n, d, first := running(t, task("t1", 1), task("t2", 1))
	job, home, err := n.find(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	v := adminService{a: n.Assigner}
	o := v.drainOrder("job", "t1")
	given, _, err := v.apply(t.Context(), job, home, o, store.Stamp{Who: "ada", When: time.UnixMilli(1)})
	if err != nil {
		t.Fatal(err)
	}
	drained := d.holds("job", "t2", ownedBy("t2"))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if g, why := v.await(over, "job", given.Version, o); why != "" || g <= first.Generation() || g < drained.Generation() {
		t.Errorf("generation %d, %q", g, why)
	}
}

// While the assigner itself has frozen the job no task is drained: it says so at once.
func TestDrainOfTheVanished(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		n := start(Config{})
		n.put(&slicerv1.JobConfig{Name: "job"})
		d := n.attach("d")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		t1, t2, t3, t4 := task("t1", 1), task("t2", 1), task("t3", 1), task("t4", 1)
		d.reports("job", true, t1, t2, t3, t4)
		d.beat(5, t1, t2, t3, t4)
		d.beat(8, t1) // all others have fallen silent
		begun := time.Now()
		_, err := n.admin.DrainTask(t.Context(), &slicerv1.DrainTaskRequest{Job: "job", Task: "t1"})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(status.Convert(err).Message(), "slicerctl unfreeze lifts that") {
			t.Errorf("drain: %v", err)
		}
		if after := time.Since(begun); after >= time.Second {
			t.Errorf("answered after %s", after)
		}
	})
}
