package clerk

import "github.com/slicer-project/slicer/assignment"

// Subset is the tasks that a client keeps warm connections to. It is immutable.
type Subset struct {
	assignment *assignment.Assignment
}

// Subset returns the clerk's subset of the tasks of its newest assignment; nil
// if there is none yet. It changes with the assignment and with the client's
// index: Changed tells of both.
func (c *Clerk) Subset() *Subset {
	a := c.newest.Load()
	if a == nil {
		return nil
	}
	return &Subset{assignment: a}
}

// Assignment is the one that the subset was taken from.
func (s *Subset) Assignment() *assignment.Assignment { return s.assignment }

// Contains says whether the task at this position of the assignment is in the
// subset.
func (s *Subset) Contains(pos int) bool { return true }
