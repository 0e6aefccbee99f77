package protocol

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// receiver takes messages as a subscriber does.
type receiver struct{ asm map[Link]*wire.Assembler }

func (r *receiver) received(c *Core, id Link, m *slicerv1.WatchResponse, now time.Time) {
	if r.asm == nil {
		r.asm = make(map[Link]*wire.Assembler)
	}
	if r.asm[id] == nil {
		r.asm[id] = new(wire.Assembler)
	}
	a, err := r.asm[id].Take(m, c.Base(id))
	c.Received(now, id, m, a, err)
}

// TestConditionsEnd: what a Distributor has told of tasks is not repeated when it serves no more:
// it would be taken for news at each change, and may be long over.
func TestConditionsEnd(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := New(Config{Job: "web", Role: Clerk, ClientID: "c1", Distributors: []string{"d1:1", "d2:1"}}, subscribertest.History(t, 1, 1)[0], assignment.Affinity, -1)
	c.Start(now)
	tell := func() {
		now = c.Wake()
		c.Tick(now)
		l, _ := dialed(c)
		c.Linked(now, l)
		new(receiver).received(c, l, &slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Status{Status: &slicerv1.Status{
			TakesReports: true, Conditions: []*slicerv1.TaskCondition{{Task: "t1", Incarnation: 1, Level: 300, PauseMs: 1000}},
		}}}, now)
		if got := c.State(); got.Link != Distributor || len(got.Status.Conditions) != 1 {
			t.Fatalf("served by %v, it is told %v", got.Link, got.Status.Conditions)
		}
		c.Ended(now, l, status.Error(codes.Unavailable, "gone"))
	}
	tell()
	if got := c.State(); got.Link == Distributor || len(got.Status.Conditions) > 0 {
		t.Errorf("served by %v, it is told %v", got.Link, got.Status.Conditions)
	}
	tell()
}
