package baseline

import (
	"math"

	"github.com/slicer-project/slicer/assignment"
)

// BoundedLoad is consistent hashing in which no task takes more than
// (1 + Slack) times the mean load: an arc goes to the next task on the ring that
// has room for it. An arc that alone is more than that is spread over several.
type BoundedLoad struct {
	// Slack is by how much a task may exceed the mean load; .25 if 0.
	Slack float64
}

// Next assigns all arcs anew, in key order.
func (b BoundedLoad) Next(r Round) assignment.Placement {
	l := live(r.Tasks)
	if len(l) == 0 {
		return assignment.Placement{}
	}
	points := ring(r.Tasks, l, Points)
	p := assignment.Placement{Starts: arcs(points)}
	total := 0.0
	for i := range p.Starts {
		total += sliceLoad(r, p.Starts, i)
	}
	slack := b.Slack
	if slack <= 0 {
		slack = .25
	}
	limit := (1 + slack) * total / float64(len(l))
	load := make([]float64, len(r.Tasks))
	starts := p.Starts
	p.Starts = nil
	for i, s := range starts {
		p.Add(s, place(points, i, sliceLoad(r, starts, i), limit, load, min(max(r.MaxReplicas, 1), len(l)))...)
	}
	return p
}

// place finds owners for an arc and books its load with them.
func place(points []point, i int, w, limit float64, load []float64, most int) []uint32 {
	replicas := 1
	if limit > 0 {
		replicas = min(max(int(math.Ceil(w/limit)), 1), most)
	}
	share := w / float64(replicas)
	var owners []uint32
	pick := func(room float64) {
		from(points, i, all, func(t uint32) bool {
			if len(owners) < replicas && load[t]+share <= room {
				owners = append(owners, t)
				load[t] += share
			}
			return len(owners) < replicas
		})
	}
	if pick(limit); len(owners) < replicas {
		for _, t := range owners {
			load[t] -= share
		}
		// Nobody has room for it: the ring decides, as if there were no limit.
		owners = owners[:0]
		pick(math.Inf(1))
	}
	return owners
}
