package assigner

import (
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
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
