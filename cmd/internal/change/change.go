// Package change says what differs between two assignments of a job, in the
// terms that a person watches: keys that came to other tasks, slices that were
// cut or joined, tasks that came and went.
package change

import (
	"cmp"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// Change is what turned one assignment into another.
type Change struct {
	// Churn is the share of the keyspace that came to a task that did not own it
	// before, summed over replicas.
	Churn float64
	// Moves are those keys by where they went, most keys first.
	Moves []Move
	// Splits and Merges count slice boundaries that are new and that are gone.
	Splits, Merges int
	// Arrived and Left are names of tasks, States those whose state is another.
	Arrived, Left []string
	States        []State
}

// Move is keys that one task owns now, and another owned before. From is empty
// where the task owns them beside all that owned them before (a replica more),
// To is empty where a replica is fewer.
type Move struct {
	From, To string
	// Share of the keyspace.
	Share float64
	// Slices, by the boundaries of both assignments.
	Slices int
}

// State is a task's change of state.
type State struct {
	Task     string
	From, To assignment.TaskState
}

// Between works out what happened from old to next. An old of nil has nothing.
func Between(old, next *assignment.Assignment) Change {
	var c Change
	c.tasks(old, next)
	if old == nil {
		return c
	}
	moves := map[[2]string]*Move{}
	add := func(from, to string, share float64) {
		m := moves[[2]string{from, to}]
		if m == nil {
			m = &Move{From: from, To: to}
			moves[[2]string{from, to}] = m
		}
		m.Share += share
		m.Slices++
	}
	var gone, came []string
	for i, j := 0, 0; i < old.NumSlices() && j < next.NumSlices(); {
		s, t := old.Slice(i), next.Slice(j)
		both, _ := s.Intersect(t)
		gone, came = differ(gone[:0], old.Replicas(i), next.Replicas(j)), differ(came[:0], next.Replicas(j), old.Replicas(i))
		share := both.Fraction()
		c.Churn += share * float64(len(came))
		for k := range max(len(gone), len(came)) {
			from, to := "", ""
			if k < len(gone) {
				from = gone[k]
			}
			if k < len(came) {
				to = came[k]
			}
			add(from, to, share)
		}
		switch {
		case s.End < t.End:
			c.Merges++
			i++
		case t.End < s.End:
			c.Splits++
			j++
		default:
			i, j = i+1, j+1
		}
	}
	for _, m := range moves {
		c.Moves = append(c.Moves, *m)
	}
	slices.SortFunc(c.Moves, func(a, b Move) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return c
}

// differ appends the names of a's tasks that are not among b's, as the same process.
func differ(names []string, a, b assignment.Replicas) []string {
next:
	for t := range a.All() {
		for u := range b.All() {
			if t.Same(u) {
				continue next
			}
		}
		names = append(names, t.Name)
	}
	return names
}

func (c *Change) tasks(old, next *assignment.Assignment) {
	if old != nil {
		for _, t := range old.Tasks() {
			if _, ok := next.Position(t.Name); !ok {
				c.Left = append(c.Left, t.Name)
			}
		}
	}
	for _, t := range next.Tasks() {
		was := assignment.Task{}
		if old != nil {
			if pos, ok := old.Position(t.Name); ok {
				was = old.Task(pos)
			}
		}
		switch {
		case was.Name == "":
			c.Arrived = append(c.Arrived, t.Name)
		case was.State != t.State || was.Incarnation != t.Incarnation:
			c.States = append(c.States, State{t.Name, was.State, t.State})
		}
	}
}
