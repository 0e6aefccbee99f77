package suite

import (
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// What all checks call things.
const (
	job       = "conformance"
	me        = "task-b" // the slicelet, or for a clerk one task among others
	myAddress = "192.0.2.2:8080"
	clientID  = "client-1"
	zone      = "zone-1"

	store = 0xfeed_face_dead_beef
	// firstGeneration is that of Unix milliseconds, which take more than 32 bits, and that no
	// clock is behind.
	firstGeneration = 1_700_000_000_000
)

// story is the assignments of one check. The slicelet under test is one of the tasks, as its
// hello has said.
type story struct {
	mine  *slicerv1.Task // nil for a clerk
	state assignment.TaskState
}

// storyOf is that of the subscriber of a stream.
func storyOf(w *watch) *story {
	if w.s.t.role == Slicelet {
		if _, err := wire.TaskFromProto(w.hello().GetTask()); err != nil {
			w.s.t.faultAt(refWatch, "a Hello with the slicelet's task", err.Error())
		}
	}
	return &story{mine: w.hello().GetTask(), state: assignment.TaskRunning}
}

// tasks are four, of which the second is the slicelet.
func (s *story) tasks() []assignment.Task {
	names := []string{"task-a", me, "task-c", "task-d"}
	all := make([]assignment.Task, len(names))
	for i, n := range names {
		all[i] = assignment.Task{
			Name: n, Incarnation: 0x8000_0000_0000_0001 + uint64(i), Address: fmt.Sprintf("192.0.2.%d:8080", i+1), Zone: zone,
			Index: uint32(3 * i), Weight: 1, State: assignment.TaskRunning,
		}
	}
	if s.mine != nil {
		all[1].Incarnation, all[1].State = s.mine.GetIncarnation(), s.state
	}
	return all
}

// slices is a placement of n slices of about equal width; owners gives the positions of the
// tasks that own the i-th.
func slicesOf(n int, owners func(i int) []uint32) assignment.Placement {
	var p assignment.Placement
	for i, start := range assignment.Equal(n) {
		p.Add(start, owners(i)...)
	}
	return p
}

// turned gives each slice to one task in turn, beginning with another one for each turn.
func turned(turn int) func(i int) []uint32 {
	return func(i int) []uint32 { return []uint32{uint32(i+turn) % 4} }
}

// assign makes the assignment that follows prev, nil for none, with the placement.
func (s *story) assign(prev *assignment.Assignment, p assignment.Placement) *assignment.Assignment {
	g := assignment.Generation(firstGeneration)
	if prev != nil {
		g = prev.Generation() + 7
	}
	return build(prev, assignment.Header{Job: job, StoreID: store, Generation: g}, s.tasks(), p)
}

// chain is n assignments of which each follows the one before, with 8 slices that move each time.
func (s *story) chain(n int) []*assignment.Assignment {
	all := make([]*assignment.Assignment, n)
	var prev *assignment.Assignment
	for i := range all {
		all[i] = s.assign(prev, slicesOf(8, turned(i)))
		prev = all[i]
	}
	return all
}

func build(prev *assignment.Assignment, h assignment.Header, tasks []assignment.Task, p assignment.Placement) *assignment.Assignment {
	a, err := assignment.Successor(prev, h, tasks, p)
	if err != nil {
		panic(trouble{err})
	}
	return a
}

func whole(a *assignment.Assignment) *wire.Frame {
	f, err := wire.WholeFrame(a)
	if err != nil {
		panic(trouble{err})
	}
	return f
}

func delta(base, a *assignment.Assignment) *wire.Frame {
	f, err := wire.DeltaFrame(base, a)
	if err != nil {
		panic(trouble{err})
	}
	return f
}

// probes are keys of which some fall into each of 8 slices, and some next to their ends.
func probes() []string {
	keys := make([]string, 48)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%d", i)
	}
	return keys
}

// keyOf is a key that the task owns in a, whose number is n among those.
func keyOf(a *assignment.Assignment, task string, n int) string {
	for i := range 100_000 {
		key := fmt.Sprintf("key-%d", i)
		if owns(a, task, key) {
			if n--; n < 0 {
				return key
			}
		}
	}
	panic(trouble{fmt.Errorf("%s owns too little", task)})
}

// owns reports whether a task of this name owns the key.
func owns(a *assignment.Assignment, task, key string) bool {
	for t := range a.Lookup(assignment.KeyOf(key)).All() {
		if t.Name == task {
			return true
		}
	}
	return false
}

func chunk(data []byte) *slicerv1.WatchResponse {
	return &slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Chunk{Chunk: &slicerv1.Chunk{Data: data}}}
}

func trailer(t *slicerv1.Trailer) *slicerv1.WatchResponse {
	return &slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Trailer{Trailer: t}}
}
