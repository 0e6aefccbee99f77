package assignment

import (
	"fmt"
	"iter"
	"slices"
)

// Header is what an assignment is of.
type Header struct {
	Job        string
	StoreID    uint64 // random, made with the store; when it changes, the past is another one
	Generation Generation
	Previous   Generation // that this one replaced; 0 for the first
	// Horizon is the generation up to which ownership is not told apart: an
	// owner whose Since is older is said to own since the horizon.
	Horizon Generation
	// Part is the name of the task that this is a part for, empty for the whole: see Cut.
	Part string
}

// String says what of, but for the generation.
func (h *Header) String() string {
	text := fmt.Sprintf("job %q, store %016x", Clip(h.Job, maxShown), h.StoreID)
	if h.Part != "" {
		text += fmt.Sprintf(", part %q", Clip(h.Part, maxShown))
	}
	return text
}

// Comparable reports whether there can be a delta between assignments with these headers: they
// are of one job and store, and both whole or parts for one task.
func (h *Header) Comparable(o *Header) bool {
	return h.Job == o.Job && h.StoreID == o.StoreID && h.Part == o.Part
}

// Columns are the slices of an assignment, one value a slice or an owner.
type Columns struct {
	// Starts of the slices, the first 0, increasing. A slice ends where the next begins.
	Starts []SliceKey
	// Offsets into Owners, one more than slices; may be nil when each slice has
	// one owner, and is in an Assignment. In a part a slice without owners is of keys
	// that are not the task's.
	Offsets []uint32
	// Owners are positions in the task table, distinct within a slice.
	Owners []uint32
	// Since, parallel to Owners: 0 is at or before the horizon, i is
	// SinceTable[i-1]. May be nil when all are 0, and is in an Assignment.
	Since []uint8
	// SinceTable holds distinct generations above the horizon, newest first, at
	// most 127 of them.
	SinceTable []Generation
}

// Assignment says which tasks own which slices in one generation of one job.
// It is immutable; all methods are safe for concurrent use.
type Assignment struct {
	h     Header
	tasks []Task
	names map[string]int // positions in tasks
	// patch is nil if the slices are in columns, which are empty otherwise: see inColumns.
	patch  *patch
	c      Columns
	lines  []line
	shift  uint8 // of a key, to find its line
	counts *counts
	moves  Moves // of a part
}

// New builds an assignment and validates all of it. It takes ownership of the
// tasks and the columns: the caller must not touch them again. Tasks are in
// order of Index, with distinct names. The error is a *FieldError, wrapped with
// the job and generation that it is about.
func New(h Header, tasks []Task, c Columns) (*Assignment, error) {
	names, err := validate(&h, tasks, &c)
	if err != nil {
		return nil, h.wrap(err)
	}
	return build(h, tasks, names, c), nil
}

// wrap says which assignment an error is about.
func (h *Header) wrap(err error) error {
	return fmt.Errorf("assignment of job %q, generation %d: %w", Clip(h.Job, maxShown), h.Generation, err)
}

// build makes an assignment of parts that are known to be valid.
func build(h Header, tasks []Task, names map[string]int, c Columns) *Assignment {
	a := newAssignment(h, tasks, names, c)
	a.buildIndex()
	return a
}

// newAssignment makes one that has no index yet.
func newAssignment(h Header, tasks []Task, names map[string]int, c Columns) *Assignment {
	// One form for equal content: no offsets when each slice has one owner, no
	// since generations when nothing refers to them.
	c.tidyOffsets()
	if !slices.ContainsFunc(c.Since, func(s uint8) bool { return s != 0 }) {
		c.Since, c.SinceTable = nil, nil
	}
	return &Assignment{h: h, tasks: tasks, names: names, c: c, counts: new(counts)}
}

// String names the assignment in a log line.
func (a *Assignment) String() string {
	return fmt.Sprintf("job %s generation %d (%d tasks, %d slices)", a.h.Job, a.h.Generation, a.NumTasks(), a.NumSlices())
}

// Header returns what the assignment is of.
func (a *Assignment) Header() Header { return a.h }

// Job is the job's name.
func (a *Assignment) Job() string { return a.h.Job }

// Generation numbers the assignment within its job.
func (a *Assignment) Generation() Generation { return a.h.Generation }

// Previous is the generation that this one replaced, 0 for the first.
func (a *Assignment) Previous() Generation { return a.h.Previous }

// StoreID names the store that the assignment was written to.
func (a *Assignment) StoreID() uint64 { return a.h.StoreID }

// Newer reports whether a should take the place of b: a newer generation, or
// whatever comes from another store. Anything is newer than nil.
func (a *Assignment) Newer(b *Assignment) bool {
	return b == nil || a.h.StoreID != b.h.StoreID || a.h.Generation > b.h.Generation
}

// NumTasks is the length of the task table. It holds every task that owns
// something and may hold others.
func (a *Assignment) NumTasks() int { return len(a.tasks) }

// Task returns the task at a position of the task table, 0 to NumTasks()-1.
func (a *Assignment) Task(pos int) Task { return a.tasks[pos] }

// Tasks goes through the task table in order of Index.
func (a *Assignment) Tasks() iter.Seq2[int, Task] {
	return func(yield func(int, Task) bool) {
		for i := range a.tasks {
			if !yield(i, a.tasks[i]) {
				return
			}
		}
	}
}

// Position finds a task by name in the task table.
func (a *Assignment) Position(name string) (pos int, ok bool) {
	pos, ok = a.names[name]
	return pos, ok
}

// Part is the name of the task that the assignment is a part for, empty if it is whole. In a
// part, slices without replicas are of keys that are not the task's, and it is not known whose
// they are.
func (a *Assignment) Part() string { return a.h.Part }

// NumSlices is at least 1.
func (a *Assignment) NumSlices() int {
	if a.patch != nil {
		return a.patch.slices
	}
	return len(a.c.Starts)
}

// NumOwners is the number of replicas of all slices together.
func (a *Assignment) NumOwners() int {
	if a.patch != nil {
		return a.patch.owners
	}
	return len(a.c.Owners)
}

// Slice returns the i-th slice in key order, 0 to NumSlices()-1.
func (a *Assignment) Slice(i int) Slice {
	a = a.inColumns()
	end := KeyspaceEnd
	if i+1 < len(a.c.Starts) {
		end = a.c.Starts[i+1]
	}
	return Slice{a.c.Starts[i], end}
}

// Replicas returns the owners of the i-th slice.
func (a *Assignment) Replicas(i int) Replicas {
	a = a.inColumns()
	lo, hi := a.c.owners(i, i+1)
	return Replicas{a, lo, hi}
}

// All goes through the slices in key order.
func (a *Assignment) All() iter.Seq2[Slice, Replicas] {
	return func(yield func(Slice, Replicas) bool) {
		a := a.inColumns()
		for i := range a.c.Starts {
			if !yield(a.Slice(i), a.Replicas(i)) {
				return
			}
		}
	}
}

// Columns gives the slices in columns, for encoders and algorithms that go
// through all of them. Read only.
func (a *Assignment) Columns() Columns { return a.inColumns().c }

// Replicas are the tasks of one slice, in the assignment's order. The zero
// value has none.
type Replicas struct {
	a      *Assignment
	lo, hi uint32
}

// Len is how many there are, at least 1 in a whole assignment: see Assignment.Part.
func (r Replicas) Len() int { return int(r.hi - r.lo) }

// At returns the i-th task.
func (r Replicas) At(i int) Task { return r.a.tasks[r.a.c.Owners[r.lo+uint32(i)]] }

// Position returns the i-th task's position in the task table.
func (r Replicas) Position(i int) int { return int(r.a.c.Owners[r.lo+uint32(i)]) }

// Since returns the generation in which the i-th task came to own every key of
// the slice, or a later one: at least the newest arrival of any part, and never
// before the horizon.
func (r Replicas) Since(i int) Generation {
	if r.a.c.Since == nil {
		return r.a.h.Horizon
	}
	if s := r.a.c.Since[r.lo+uint32(i)]; s > 0 {
		return max(r.a.c.SinceTable[s-1], r.a.h.Horizon) // what a patch keeps may be older
	}
	return r.a.h.Horizon
}

// All goes through the tasks in order.
func (r Replicas) All() iter.Seq[Task] {
	return func(yield func(Task) bool) {
		for i := range r.Len() {
			if !yield(r.At(i)) {
				return
			}
		}
	}
}

// Has reports whether the task at a position of the task table is among them.
func (r Replicas) Has(pos int) bool {
	for i := r.lo; i < r.hi; i++ {
		if int(r.a.c.Owners[i]) == pos {
			return true
		}
	}
	return false
}
