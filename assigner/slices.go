package assigner

import (
	"context"
	"fmt"
	"math"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// maxHotKeys is how many of the hottest keys are told.
	maxHotKeys = 64
	// maxSlicesBytes bounds an answer: clients take 4 MiB.
	maxSlicesBytes = 7 << 19
)

// InspectSlices implements AdminService.
func (v adminService) InspectSlices(ctx context.Context, m *slicerv1.InspectSlicesRequest) (*slicerv1.InspectSlicesResponse, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c := v.caller(ctx)
	if r := readable(v, c, m.GetJob()); r != nil {
		return r.slices(assignment.Generation(m.GetKnownGeneration()))
	}
	j, _, err := v.find(ctx, c, assignment.Read, m.GetJob())
	if err != nil {
		return nil, statusOf(err)
	}
	v.a.changed(j.Config.Name)
	return &slicerv1.InspectSlicesResponse{}, nil
}

// slices tells the newest assignment, unless it is the known one, and its load.
func (r *runner) slices(known assignment.Generation) (*slicerv1.InspectSlicesResponse, error) {
	var a *assignment.Assignment
	var reports []loadbalance.Report
	r.ask(func(v generate.View) { a, reports = v.Stored(), v.Reports() })
	out := &slicerv1.InspectSlicesResponse{}
	if a == nil {
		return out, nil
	}
	out.Generation = int64(a.Generation())
	if len(reports) > 0 {
		l := loadbalance.Measure(a, reports)
		out.Load = make([]float32, len(l.Slice))
		for i, x := range l.Slice {
			if out.Load[i] = float32(x); math.IsNaN(x) {
				out.Load[i] = -1
			}
		}
		for _, h := range l.Hot[:min(len(l.Hot), maxHotKeys)] {
			out.HotKey, out.HotRate = append(out.HotKey, uint64(h.Key)), append(out.HotRate, float32(h.Rate))
		}
	}
	if a.Generation() != known {
		var err error
		if out.Assignment, err = wire.EncodeAssignment(a); err != nil {
			return nil, statusOf(fmt.Errorf("encode the assignment: %w", err))
		}
	}
	if len(out.Assignment)+4*len(out.Load) > maxSlicesBytes {
		out.Assignment, out.Load, out.TooLarge = nil, nil, true
	}
	return out, nil
}
