package assigner

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// The answer to a rollback says what pins keep elsewhere.
func TestRollbackSaysWhatIsElsewhere(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		n := start(Config{})
		n.put(&slicerv1.JobConfig{Name: "job", MaxReplicas: 1})
		d := n.attach("d1")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		t1, t2 := task("t1", 1), task("t2", 1)
		d.reports("job", true, t1, t2)
		first := d.holds("job", "both", ownedBy("t1", "t2"))
		give := func(m *slicerv1.GiveOrderRequest) *slicerv1.GiveOrderResponse {
			t.Helper()
			m.Job, m.Who = "job", "ada"
			resp, err := n.admin.GiveOrder(t.Context(), m)
			if err != nil || resp.Pending != "" {
				t.Fatalf("%v, %v", resp, err)
			}
			d.beat(1, t1, t2)
			return resp
		}
		back := func() string {
			t.Helper()
			return give(&slicerv1.GiveOrderRequest{Order: &slicerv1.GiveOrderRequest_Rollback{Rollback: &slicerv1.RollbackOrder{Generation: int64(first.Generation())}}}).Note
		}
		key := assignment.SliceKey(0)
		other := map[string]string{"t1": "t2", "t2": "t1"}[first.Lookup(key).At(0).Name]
		give(&slicerv1.GiveOrderRequest{Order: &slicerv1.GiveOrderRequest_Pin{Pin: &slicerv1.PinOrder{Start: 0, End: 1, Task: other}}})
		if note := back(); !strings.HasPrefix(note, "except 1 slice, ") || !strings.HasSuffix(note, "that a pin, an exclusion or a task that does not run keeps elsewhere") {
			t.Errorf("with a pin: %q", note)
		}
		give(&slicerv1.GiveOrderRequest{Order: &slicerv1.GiveOrderRequest_Unpin{Unpin: &slicerv1.UnpinOrder{Start: 0, End: 1}}})
		if note := back(); note != "" {
			t.Errorf("without pins: %q", note)
		}
	})
}

// slow is a store that carries a write out at once, and while it is on says so only when
// nothing waits for that any more.
type slow struct {
	store.Backend
	on atomic.Bool
}

func (s *slow) Commit(ctx context.Context, c store.Commit) error {
	err := s.Backend.Commit(ctx, c)
	if err == nil && s.on.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// A rollback that turns out to be carried out when it is to be taken back is done.
func TestRollbackCarriedOutAtTheEnd(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		st := &slow{Backend: openPebble(t)}
		n := start(Config{Stores: []NamedStore{{Backend: st}}})
		n.put(&slicerv1.JobConfig{Name: "job", MaxReplicas: 1})
		d := n.attach("d1")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		t1, t2 := task("t1", 1), task("t2", 1)
		d.reports("job", true, t1)
		first := d.holds("job", "t1", ownedBy("t1"))
		d.reports("job", false, t2)
		d.beat(2, t1, t2)
		d.holds("job", "both", ownedBy("t1", "t2"))
		st.on.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // less than a write may take
		defer cancel()
		resp, err := n.admin.GiveOrder(ctx, &slicerv1.GiveOrderRequest{Job: "job", Who: "ada",
			Order: &slicerv1.GiveOrderRequest_Rollback{Rollback: &slicerv1.RollbackOrder{Generation: int64(first.Generation())}}})
		if err != nil {
			t.Fatalf("it is carried out, and the answer is %v", err)
		}
		a, err := st.Read(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		if resp.Generation != int64(a.Generation()) || resp.Generation <= int64(first.Generation()) || resp.Pending != "" || resp.Note != "" {
			t.Errorf("the answer is %v, and %d is stored", resp, a.Generation())
		}
	})
}
