package assigner

import (
	"testing"

	"google.golang.org/protobuf/proto"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// FuzzTaskReport has a report from the network refused or made sense of.
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
