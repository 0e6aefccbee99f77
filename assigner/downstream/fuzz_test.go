package downstream

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assigner/clientindex"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func task(name string, incarnation uint64) *slicerv1.Task {
	return &slicerv1.Task{Name: name, Incarnation: incarnation, Address: name + ":80", Weight: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING}
}

// FuzzTaskReport: a report from the network is refused, or makes sense.
func FuzzTaskReport(f *testing.F) {
	for _, m := range []*slicerv1.TaskReport{
		{},
		{Task: task("t", 1), Disconnected: true},
		{Task: task("t", 1), Report: &slicerv1.Report{Sequence: 7, AgeMs: -1, State: 99}},
		{Task: task("t", 1), Report: &slicerv1.Report{AgeMs: 1 << 62, Load: &slicerv1.LoadReport{RangeSkip: []uint64{1}, RangeWidth: []uint64{2}, Rate: []float32{3}}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m slicerv1.TaskReport
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		r, err := reportFromProto(&m)
		if err != nil {
			return
		}
		if err := r.Task.Validate(); err != nil {
			t.Error(err)
		}
		if r.Age < 0 || r.Age > maxAge {
			t.Errorf("age %s", r.Age)
		}
	})
}

func holds(id string, index uint32, age time.Duration) *slicerv1.Client {
	return &slicerv1.Client{ClientId: id, Index: &index, AgeMs: age.Milliseconds()}
}

// FuzzClients: whatever a Distributor sends of clients, what is given out are
// distinct, dense indexes, and nothing panics.
func FuzzClients(f *testing.F) {
	for _, m := range []*slicerv1.Clients{
		{},
		{Complete: true, Clients: []*slicerv1.Client{{ClientId: "a"}, holds("b", 1<<31, -1), holds("b", 0, 1<<62), {ClientId: "a", Disconnected: true}, {}}},
		{Clients: []*slicerv1.Client{holds("x y", 3, 0), holds(strings.Repeat("a", 200), 0, 0), holds("c", 1<<20, 5)}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		table := clientindex.New(clientindex.Config{})
		table.Prefer(0, true)
		held := make(map[string]int)
		for i, data := range [][]byte{a, b} {
			var m slicerv1.Clients
			if proto.Unmarshal(data, &m) != nil {
				return
			}
			table.Report(time.Duration(i)*time.Second, 1, m.Complete, clientsFromProto(m.Clients))
			table.Advance(time.Duration(i+1) * 10 * time.Second)
			for _, g := range table.Take(1, 1<<20) {
				if g.ID == "" || len(g.ID) > clientindex.MaxID || g.Index < 0 || g.Index > clientindex.MaxIndex {
					t.Errorf("%+v", g)
				}
				held[g.ID] = g.Index
			}
		}
		by := make(map[int]string)
		for id, index := range held {
			if by[index] != "" && table.Stats().Clients == len(held) {
				t.Errorf("%s and %s hold %d", id, by[index], index)
			}
			by[index] = id
		}
	})
}
