package loadbalance_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// quarter is the k-th quarter of the keyspace.
func quarter(k int) assignment.SliceKey { return assignment.SliceKey(k) * (assignment.KeyspaceEnd / 4) }

func span(from, to int) assignment.Slice {
	return assignment.Slice{Start: quarter(from), End: quarter(to)}
}

// quarters is generation 10 of a job: t0 has the first half in two slices, t1
// and t2 share the third quarter, t2 has the last.
func quarters(t *testing.T) *assignment.Assignment {
	t.Helper()
	var p assignment.Placement
	p.Add(quarter(0), 0)
	p.Add(quarter(1), 0)
	p.Add(quarter(2), 1, 2)
	p.Add(quarter(3), 2)
	a, err := assignment.Successor(nil, assignment.Header{Job: "job", Generation: 10}, fleet(3), p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func report(task string, g assignment.Generation, ranges []assignment.Slice, rates ...float64) loadbalance.Report {
	return loadbalance.Report{Task: task, Incarnation: 1, Load: assignment.Load{Generation: g, Ranges: ranges, Rate: rates, Parts: 1}}
}

func TestMeasure(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name    string
		reports []loadbalance.Report
		want    []float64
	}{
		{"nothing", nil, []float64{nan, nan, nan, nan}},
		{"all of this generation", []loadbalance.Report{
			report("t0", 10, []assignment.Slice{span(0, 1), span(1, 2)}, 1, 2),
			report("t1", 10, []assignment.Slice{span(2, 3)}, 3),
			report("t2", 10, []assignment.Slice{span(2, 3), span(3, 4)}, 4, 5),
		}, []float64{1, 2, 7, 5}},
		{"one replica has not reported", []loadbalance.Report{
			report("t1", 10, []assignment.Slice{span(2, 3)}, 3),
		}, []float64{nan, nan, 6, nan}},
		{"a slice was split since", []loadbalance.Report{
			report("t0", 9, []assignment.Slice{span(0, 2)}, 8),
		}, []float64{4, 4, nan, nan}},
		{"a slice moved since", []loadbalance.Report{
			report("t0", 9, []assignment.Slice{span(3, 4)}, 8),
			report("t2", 9, []assignment.Slice{}, []float64{}...),
		}, []float64{nan, nan, nan, 8}},
		{"a replica was removed since", []loadbalance.Report{
			report("t0", 9, []assignment.Slice{span(3, 4)}, 8),
			report("t2", 9, []assignment.Slice{span(3, 4)}, 7),
		}, []float64{nan, nan, nan, 15}},
		{"the former owner is further behind", []loadbalance.Report{
			report("t0", 8, []assignment.Slice{span(3, 4)}, 8),
			report("t2", 9, []assignment.Slice{span(3, 4)}, 7),
		}, []float64{nan, nan, nan, 7}},
		{"slices were merged since", []loadbalance.Report{
			report("t2", 9, []assignment.Slice{{Start: quarter(3), End: quarter(3) + 10}, {Start: quarter(3) + 10, End: quarter(4)}}, 1, 2),
		}, []float64{nan, nan, nan, 3}},
		{"nonsense", []loadbalance.Report{
			report("nobody", 10, []assignment.Slice{span(0, 1)}, 1),
			report("t0", 10, []assignment.Slice{span(0, 1), span(1, 2)}, -1, math.Inf(1)),
			report("t1", 10, []assignment.Slice{span(2, 3), span(0, 1)}, nan, 1),
			report("t2", 10, []assignment.Slice{span(3, 4), {Start: 5, End: 1}}, 1),
		}, []float64{nan, nan, nan, nan}},
		{"two reports of one task", []loadbalance.Report{
			report("t0", 10, []assignment.Slice{span(0, 1)}, 5),
			report("t0", 9, []assignment.Slice{span(0, 1)}, 9),
		}, []float64{5, nan, nan, nan}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := loadbalance.Measure(quarters(t), c.reports)
			if d := cmp.Diff(c.want, got.Slice, cmpopts.EquateNaNs()); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestMeasureParts checks that parts survive a split and a merge exactly.
func TestMeasureParts(t *testing.T) {
	whole := loadbalance.Report{Task: "t0", Incarnation: 1, Load: assignment.Load{
		Generation: 9, Ranges: []assignment.Slice{span(0, 2)}, Rate: []float64{10}, Parts: 4, PartRate: []float64{1, 2, 3, 4},
	}}
	got := loadbalance.Measure(quarters(t), []loadbalance.Report{whole})
	if d := cmp.Diff([]float64{3, 7}, got.Slice[:2]); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]float64{.5, .5, 1, 1, 1.5, 1.5, 2, 2}, got.Part[:8]); d != "" {
		t.Error(d)
	}
}

func TestMeasureHotKeys(t *testing.T) {
	r1 := report("t1", 10, []assignment.Slice{span(2, 3)}, 3)
	r1.Load.Hot = []assignment.HotKey{{Key: quarter(2) + 5, Rate: 2, Error: .5}, {Key: 3, Rate: 9}, {Key: quarter(2), Rate: math.NaN()}}
	r1.Load.CPU, r1.Load.Shed = .5, 7
	r2 := report("t2", 10, []assignment.Slice{span(2, 3), span(3, 4)}, 3, 1)
	r2.Load.Hot = []assignment.HotKey{{Key: quarter(2) + 5, Rate: 1}}
	got := loadbalance.Measure(quarters(t), []loadbalance.Report{r1, r2})
	// t1 does not own key 3, so no report of its owner says that it is hot.
	if d := cmp.Diff([]assignment.HotKey{{Key: quarter(2) + 5, Rate: 3, Error: .5}}, got.Hot); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]float64{0, .5, 0}, got.CPU); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]float64{0, 7, 0}, got.Shed); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]float64{0, 3, 4}, got.Task); d != "" {
		t.Error(d)
	}
}
