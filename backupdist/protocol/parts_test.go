package protocol

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// A subscriber that lacks nothing, or has not acknowledged its part yet, costs no cut when it is
// asked what to send.
func TestPartsAreCutOnce(t *testing.T) {
	const slices = assignment.PartFrom
	task := assignment.Task{Name: "a", Incarnation: 1, Address: "h:1", Weight: 1, State: assignment.TaskRunning}
	a, err := assignment.Successor(nil, assignment.Header{Job: "web", StoreID: 7, Generation: 10}, []assignment.Task{task}, assignment.Placement{Starts: assignment.Equal(slices), Owners: make([]uint32, slices)})
	if err != nil {
		t.Fatal(err)
	}
	st := State{Known: true, Newest: a, Parts: assignment.NewCut(a)}
	now := time.UnixMilli(1)
	s, err := NewSubscriber(now, &slicerv1.Hello{Job: "web", Role: slicerv1.Role_ROLE_SLICELET, Task: &slicerv1.Task{Name: "a"}, Parts: true})
	if err != nil {
		t.Fatal(err)
	}
	if send := s.Next(now, st); send.Status == nil {
		t.Fatalf("%+v is sent first, want a status", send)
	}
	if send := s.Next(now, st); send.Newest.Part() != "a" {
		t.Fatalf("%v is sent, want the part", send.Newest)
	}
	nothing := func(when string) {
		t.Helper()
		var send Send
		if n := testing.AllocsPerRun(10, func() { send = s.Next(now, st) }); n > 0 || send != (Send{}) {
			t.Errorf("%s: %+v is sent, and memory was taken %v times; want nothing, and none", when, send, n)
		}
	}
	nothing("in flight")
	s.Ack(&slicerv1.Ack{Generation: int64(a.Generation())})
	nothing("acknowledged")
}
