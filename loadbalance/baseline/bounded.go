package baseline

import (
	"cmp"
	"math"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// BoundedLoad is consistent hashing in which no task takes more than
// (1 + Slack) times the mean load: an arc goes to the next task on the ring that
// has room for it. An arc for which none has room is spread over several, as
// many as it takes and MaxReplicas allows.
type BoundedLoad struct {
	// Slack is by how much a task may exceed the mean load; .25 if 0.
	Slack float64
}

// Next assigns all arcs anew, heaviest first.
func (b BoundedLoad) Next(r Round) assignment.Placement {
	l := live(r.Tasks)
	if len(l) == 0 {
		return assignment.Placement{}
	}
	points := ring(r.Tasks, l, Points)
	starts := arcs(points)
	load := make([]float64, len(starts))
	order := make([]int, len(starts))
	total := 0.0
	for i := range starts {
		load[i], order[i] = sliceLoad(r, starts, i), i
		total += load[i]
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(load[j], load[i]) })
	slack := b.Slack
	if slack <= 0 {
		slack = .25
	}
	bound := bound{
		points: points, limit: (1 + slack) * total / float64(len(l)),
		load: make([]float64, len(r.Tasks)), most: min(max(r.MaxReplicas, 1), len(l)),
	}
	owners := make([][]uint32, len(starts))
	for _, i := range order {
		owners[i] = bound.place(i, load[i])
	}
	var p assignment.Placement
	for i, s := range starts {
		p.Add(s, owners[i]...)
	}
	return p
}

// bound is what the tasks carry so far.
type bound struct {
	points []point
	limit  float64
	load   []float64
	most   int
}

// place finds owners for an arc and books its load with them.
func (b *bound) place(i int, w float64) []uint32 {
	least := 1
	if b.limit > 0 {
		least = min(max(int(math.Ceil(w/b.limit)), 1), b.most)
	}
	for n := least; n <= b.most; n++ {
		if owners := b.pick(i, n, w/float64(n), b.limit); owners != nil {
			return owners
		}
	}
	// The ring decides, as if there were no limit.
	return b.pick(i, least, w/float64(least), math.Inf(1))
}

// pick takes the next n tasks that have room for share; nil if there are fewer.
func (b *bound) pick(i, n int, share, limit float64) []uint32 {
	var owners []uint32
	from(b.points, i, all, func(t uint32) bool {
		if b.load[t]+share <= limit {
			owners = append(owners, t)
		}
		return len(owners) < n
	})
	if len(owners) < n {
		return nil
	}
	for _, t := range owners {
		b.load[t] += share
	}
	return owners
}
