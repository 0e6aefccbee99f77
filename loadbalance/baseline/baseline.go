// Package baseline holds the sharding algorithms that users would choose if
// they had no Slicer, to compare it with: static sharding, consistent hashing
// (Karger et al., 1997), consistent hashing with bounded loads (Mirrokni,
// Thorup, Zadimoghaddam, 2018), and the load-aware consistent hashing that
// Slicer itself began with (Slicer paper, section 4.4.4).
//
// They are pure functions of what they are given: the same input gives the same
// placement. They move slices only as their own rules say and know no budget.
package baseline

import (
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// Round is what an algorithm may look at.
type Round struct {
	// Tasks is the task table; only running tasks get slices.
	Tasks []assignment.Task
	// Prev and its Loads are nil in the first round.
	Prev  *assignment.Assignment
	Loads *loadbalance.Loads
	// MaxReplicas bounds how many tasks a slice may have. Algorithms that do not
	// replicate ignore it.
	MaxReplicas int
}

// Algorithm decides one round after another for one job. It is not safe for
// concurrent use.
type Algorithm interface {
	// Next returns the placement for the coming round, empty when no task runs.
	Next(Round) assignment.Placement
}

// Points is how many points of the ring, or slices, a task of weight 1 gets.
const Points = 100

// live returns the running tasks' positions.
func live(tasks []assignment.Task) []uint32 {
	var l []uint32
	for i, t := range tasks {
		if t.State == assignment.TaskRunning {
			l = append(l, uint32(i))
		}
	}
	return l
}

// Static divides the keyspace once, into 100 equal slices a task, dealt out in
// turn. It is what the Slicer paper compares with in section 5.1.
type Static struct{}

// Next always returns the same for the same tasks.
func (Static) Next(r Round) assignment.Placement {
	l := live(r.Tasks)
	if len(l) == 0 {
		return assignment.Placement{}
	}
	p := assignment.Placement{Starts: assignment.Equal(Points * len(l))}
	for i := range p.Starts {
		p.Owners = append(p.Owners, l[i%len(l)])
	}
	return p
}

// point is a place on the ring that belongs to a task.
type point struct {
	at   assignment.SliceKey
	task uint32
	n    int // which of the task's points, from 0
}

// ring places n points of each task, in key order.
func ring(tasks []assignment.Task, l []uint32, n int) []point {
	var points []point
	for _, t := range l {
		for k := range n {
			h := xxhash.Sum64String(tasks[t].Name + "#" + strconv.Itoa(k))
			points = append(points, point{assignment.SliceKey(h >> 1), t, k})
		}
	}
	slices.SortFunc(points, func(a, b point) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return int(a.task) - int(b.task)
	})
	return slices.CompactFunc(points, func(a, b point) bool { return a.at == b.at })
}

// arcs are the slices of a ring: arc i ends at point i, and the last, past all
// points, belongs to the first. The arc before a point is that point's.
func arcs(points []point) (starts []assignment.SliceKey) {
	starts = append(starts, 0)
	for _, p := range points {
		if p.at > starts[len(starts)-1] {
			starts = append(starts, p.at)
		}
	}
	return starts
}

// from calls f with the distinct tasks clockwise of arc i until it returns
// false. keep says which points count.
func from(points []point, i int, keep func(point) bool, f func(task uint32) bool) {
	var seen []uint32
	for k := range points {
		p := points[(i+k)%len(points)]
		if slices.Contains(seen, p.task) || !keep(p) {
			continue
		}
		seen = append(seen, p.task)
		if !f(p.task) {
			return
		}
	}
}

func all(point) bool { return true }

// ConsistentHash gives each arc to the next task on the ring.
type ConsistentHash struct{}

// Next depends on the tasks alone.
func (ConsistentHash) Next(r Round) assignment.Placement {
	l := live(r.Tasks)
	if len(l) == 0 {
		return assignment.Placement{}
	}
	points := ring(r.Tasks, l, Points)
	p := assignment.Placement{Starts: arcs(points)}
	for i := range p.Starts {
		p.Owners = append(p.Owners, points[i%len(points)].task)
	}
	return p
}

// sliceLoad is the load of slice i, or 0 when the loads are of other slices.
func sliceLoad(r Round, starts []assignment.SliceKey, i int) float64 {
	if r.Prev == nil || r.Loads == nil || r.Prev.NumSlices() != len(starts) || len(r.Loads.Slice) != len(starts) {
		return 0
	}
	if v := r.Loads.Slice[i]; v > 0 {
		return v
	}
	return 0
}
