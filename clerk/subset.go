package clerk

import (
	"iter"
	"slices"
	"sort"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/subset"
)

// Subset is the tasks that a client keeps warm connections to, as one assignment
// and one client index give it. It is immutable.
//
// A subset is made of places, the tasks' dense indexes, so that a drain changes
// nothing: a task that starts or drains keeps its place. (It should get no new
// requests while it drains.) A dead task's place is padding, which moves no other task
// else: each client that had it gets one other instead, and it back when it
// returns.
type Subset struct {
	assignment *assignment.Assignment
	index      int
	known      bool
	positions  []int
	in         []uint64 // the same as a bit set
}

// Subset returns the clerk's subset of the tasks of its newest assignment; nil
// if there is none yet. It changes with the assignment and with the client's
// index: Changed tells of both. It is worked out at each change, not here.
func (c *Clerk) Subset() *Subset { return c.subset.Load() }

// Assignment is the one that the subset was taken from. To have a lookup and a
// subset that fit together, look up in this one.
func (s *Subset) Assignment() *assignment.Assignment { return s.assignment }

// Contains reports whether the task at this position of the assignment is in the
// subset.
func (s *Subset) Contains(pos int) bool {
	return pos >= 0 && pos>>6 < len(s.in) && s.in[pos>>6]>>(pos&63)&1 != 0
}

// Len is the number of tasks in the subset.
func (s *Subset) Len() int { return len(s.positions) }

// Tasks yields the subset's tasks with their positions in the assignment, in
// ascending order.
func (s *Subset) Tasks() iter.Seq2[int, assignment.Task] {
	return func(yield func(int, assignment.Task) bool) {
		for _, pos := range s.positions {
			if !yield(pos, s.assignment.Task(pos)) {
				return
			}
		}
	}
}

// Index is the client index that the subset was worked out with. known is false
// while the client has not been given one: then the index is derived from its id,
// and the subset will be another as soon as there is one. As that is usually a
// moment after the start, it is better not to connect to a task of such a subset
// before there is a request for it.
func (s *Subset) Index() (index int, known bool) { return s.index, s.known }

// choose works the subset out for a client that has an index, or none if that is
// negative. It takes time linear in the number of tasks.
func (c *chooser) choose(a *assignment.Assignment, has int) *Subset {
	s := &Subset{assignment: a, in: make([]uint64, (a.NumTasks()+63)/64)}
	s.index, s.known = c.index(has)
	present := make([]int, 0, a.NumTasks()) // indexes
	at := make([]int, 0, a.NumTasks())      // and the positions of them
	for pos, t := range a.Tasks() {
		if t.State != assignment.TaskDead {
			present, at = append(present, int(t.Index)), append(at, pos)
		}
	}
	s.positions = at
	if c.size > 0 && c.size < len(present) {
		// What is validated does not fail; if it did, all tasks would be the
		// subset that breaks nothing.
		if chosen, err := c.pick(present, s.index); err == nil {
			s.positions = make([]int, len(chosen))
			for i, index := range chosen {
				s.positions[i] = at[sort.SearchInts(present, index)]
			}
			slices.Sort(s.positions)
		}
	}
	for _, pos := range s.positions {
		s.in[pos>>6] |= 1 << (pos & 63)
	}
	return s
}

func (c *chooser) pick(present []int, index int) ([]int, error) {
	b, err := subset.Present(present)
	if err != nil {
		return nil, err
	}
	return subset.Rocksteadier{}.Append(nil, subset.Shape{Backends: b, Size: c.size}, index)
}

// same reports whether it would be worked out from the same again.
func (s *Subset) same(a *assignment.Assignment, index int, known bool) bool {
	return s != nil && s.assignment == a && s.index == index && s.known == known
}
