package lease

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Belief is what a task may believe in while it is valid: all of its keys in the
// guard's assignment, or those that are its own on both sides of a bridge. It is
// immutable but for its deadline; all methods are safe for concurrent use, and
// on nil, which believes in nothing.
type Belief struct {
	term   *term
	before ownership // the guard's assignment, or the bridge's from
	after  ownership // the bridge's to; none under the guard
}

// ownership is an assignment as one task sees it.
type ownership struct {
	a    *assignment.Assignment
	self int // position in the task table, -1 if not this incarnation
}

// term is how long a session may be trusted.
type term struct {
	clock    func() time.Duration
	deadline atomic.Int64
}

func (t *term) valid() bool { return noDeadline || t.clock() < time.Duration(t.deadline.Load()) }

// disorder is by how much the clock may say less than another goroutine has read before.
const disorder = 40 * time.Microsecond

// extend moves the deadline forward, unless it has passed, in whatever order the clock
// was read: then the session is over and never believed in again, and extend returns false.
func (t *term) extend(to time.Duration) bool {
	was := t.deadline.Load()
	if int64(t.clock()+disorder) >= was {
		return false
	}
	t.deadline.Store(max(was, int64(to)))
	// What found it passed meanwhile had read the clock before this.
	if int64(t.clock()+disorder) >= was {
		t.end()
		return false
	}
	return true
}

// end lets the deadline have passed.
func (t *term) end() { t.deadline.Store(math.MinInt64) }

func (v ownership) owns(k assignment.SliceKey) bool {
	if v.self < 0 {
		return false
	}
	r := v.a.Lookup(k)
	return r.Len() == 1 && r.Position(0) == v.self
}

// Valid reads the clock: the lease is held now, and was since the belief began.
// A process that was stopped for longer than its lease finds it false at once.
func (b *Belief) Valid() bool { return b != nil && b.term.valid() }

// Owns reports whether the key is the task's own, and the belief valid now. The
// clock is read last, so true was true at that instant.
func (b *Belief) Owns(k assignment.SliceKey) bool {
	return b != nil && b.before.owns(k) && (b.after.a == nil || b.after.owns(k)) && b.term.valid()
}

// Assignments returns the guard's assignment and nil, or the two sides of the bridge.
func (b *Belief) Assignments() (before, after *assignment.Assignment) {
	if b == nil {
		return nil, nil
	}
	return b.before.a, b.after.a
}

// Slices returns the task's own slices in key order, joined where they touch,
// whether or not the belief is valid.
func (b *Belief) Slices() []assignment.Slice {
	if b == nil {
		return nil
	}
	own := b.before.slices()
	if b.after.a != nil {
		own = intersect(own, b.after.slices())
	}
	return own
}

func (v ownership) slices() (own []assignment.Slice) {
	if v.self < 0 {
		return nil
	}
	for s, r := range v.a.All() {
		if r.Len() != 1 || r.Position(0) != v.self {
			continue
		}
		if n := len(own); n > 0 && own[n-1].End == s.Start {
			own[n-1].End = s.End
		} else {
			own = append(own, s)
		}
	}
	return own
}

func intersect(a, b []assignment.Slice) (both []assignment.Slice) {
	for len(a) > 0 && len(b) > 0 {
		s := assignment.Slice{Start: max(a[0].Start, b[0].Start), End: min(a[0].End, b[0].End)}
		if s.Start < s.End {
			both = append(both, s)
		}
		if a[0].End < b[0].End {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return slices.Clip(both)
}

// see finds a task in an assignment: by name and incarnation, since of two live
// processes under one name at most one is the owner.
func see(a *assignment.Assignment, task string, incarnation uint64) ownership {
	pos, ok := a.Position(task)
	if !ok || a.Task(pos).Incarnation != incarnation {
		pos = -1
	}
	return ownership{a, pos}
}
