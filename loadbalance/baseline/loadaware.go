package baseline

import (
	"math"

	"github.com/slicer-project/slicer/assignment"
)

// LoadAware is consistent hashing whose tasks have more or fewer points
// according to their load, as in Centrifuge, with the refinements of which the
// Slicer paper (section 4.4.4) speaks: the response is proportional to the
// imbalance, and hot arcs get replicas, each as many as it needs.
type LoadAware struct {
	count map[string]float64 // points of each task, by name
}

const (
	mostPoints = 2 * Points
	// A point is worth about 1/count of a task's load, but where it goes is
	// chance, so a full response overshoots.
	response = .5
	deadband = .05
)

// Next adjusts the points of each task to the load it had.
func (a *LoadAware) Next(r Round) assignment.Placement {
	l := live(r.Tasks)
	if len(l) == 0 {
		return assignment.Placement{}
	}
	a.adjust(r, l)
	points := ring(r.Tasks, l, mostPoints)
	starts := arcs(points)
	total := 0.0
	for i := range starts {
		total += sliceLoad(r, starts, i)
	}
	mean := total / float64(len(l))
	keep := func(p point) bool { return float64(p.n) < a.count[r.Tasks[p.task].Name] }
	var p assignment.Placement
	for i, s := range starts {
		replicas := 1
		if mean > 0 {
			// An arc as hot as half a task cannot be balanced by anything else.
			replicas = min(max(int(math.Ceil(2*sliceLoad(r, starts, i)/mean)), 1), max(r.MaxReplicas, 1), len(l))
		}
		var owners []uint32
		from(points, i, keep, func(t uint32) bool {
			owners = append(owners, t)
			return len(owners) < replicas
		})
		p.Add(s, owners...)
	}
	return p
}

func (a *LoadAware) adjust(r Round, l []uint32) {
	if a.count == nil {
		a.count = make(map[string]float64)
	}
	for _, t := range l {
		if _, ok := a.count[r.Tasks[t].Name]; !ok {
			a.count[r.Tasks[t].Name] = Points
		}
	}
	if r.Prev == nil || r.Loads == nil {
		return
	}
	load := make([]float64, len(r.Tasks))
	total := 0.0
	for _, t := range l {
		if pos, ok := r.Prev.Position(r.Tasks[t].Name); ok && pos < len(r.Loads.Task) && r.Loads.Task[pos] > 0 {
			load[t] = r.Loads.Task[pos]
			total += load[t]
		}
	}
	mean := total / float64(len(l))
	if !(mean > 0) || math.IsInf(mean, 1) {
		return
	}
	for _, t := range l {
		if x := load[t] / mean; math.Abs(x-1) > deadband {
			name := r.Tasks[t].Name
			a.count[name] = min(max(a.count[name]*math.Pow(max(x, .1), -response), 1), mostPoints)
		}
	}
}
