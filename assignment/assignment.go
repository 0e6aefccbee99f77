package assignment

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"sync"

	"github.com/cespare/xxhash/v2"
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
}

// Columns are the slices of an assignment, one value a slice or an owner.
type Columns struct {
	// Starts of the slices, the first 0, increasing. A slice ends where the next begins.
	Starts []SliceKey
	// Offsets into Owners, one more than slices; nil when each slice has one owner.
	Offsets []uint32
	// Owners are positions in the task table, distinct within a slice.
	Owners []uint32
	// Since, parallel to Owners: 0 is at or before the horizon, i is
	// SinceTable[i-1]. Nil when all are 0.
	Since []uint8
	// SinceTable holds distinct generations above the horizon, newest first.
	SinceTable []Generation
}

// Assignment says which tasks own which slices in one generation of one job.
// It is immutable; all methods are safe for concurrent use.
type Assignment struct {
	h     Header
	tasks []Task
	c     Columns
	index []uint32
	shift uint8 // of a key, to find its place in index

	byName func() map[string]int
	sum    func() uint64
}

// New builds an assignment and validates all of it. It takes ownership of the
// tasks and the columns: the caller must not touch them again. Tasks are in
// order of Index, with distinct names.
func New(h Header, tasks []Task, c Columns) (*Assignment, error) {
	if err := validate(&h, tasks, &c); err != nil {
		return nil, fmt.Errorf("assignment of job %q, generation %d: %w", clip(h.Job), h.Generation, err)
	}
	a := &Assignment{h: h, tasks: tasks, c: c}
	a.buildIndex()
	a.byName = sync.OnceValue(func() map[string]int {
		m := make(map[string]int, len(tasks))
		for i := range tasks {
			m[tasks[i].Name] = i
		}
		return m
	})
	a.sum = sync.OnceValue(a.checksum)
	return a, nil
}

func clip(s string) string { return s[:min(len(s), 80)] }

func validate(h *Header, tasks []Task, c *Columns) error {
	if err := ValidateJobName(h.Job); err != nil {
		return err
	}
	switch {
	case h.Generation <= 0 || h.Generation > MaxGeneration:
		return &FieldError{"generation", int64(h.Generation), fmt.Sprintf("1 to %d", MaxGeneration)}
	case h.Previous < 0 || h.Previous >= h.Generation:
		return &FieldError{"previous", int64(h.Previous), "0 or a generation before this one"}
	case h.Horizon < 0 || h.Horizon > h.Generation:
		return &FieldError{"horizon", int64(h.Horizon), "0 to the generation"}
	case len(tasks) > MaxTasks:
		return &FieldError{"tasks", len(tasks), fmt.Sprintf("at most %d", MaxTasks)}
	case len(c.Starts) < 1 || len(c.Starts) > MaxSlices:
		return &FieldError{"slices", len(c.Starts), fmt.Sprintf("1 to %d", MaxSlices)}
	case len(c.Owners) > MaxOwnerships:
		return &FieldError{"owners", len(c.Owners), fmt.Sprintf("at most %d", MaxOwnerships)}
	}
	names := make(map[string]struct{}, len(tasks))
	for i := range tasks {
		if err := tasks[i].Validate(); err != nil {
			return err
		}
		if i > 0 && tasks[i].Index <= tasks[i-1].Index {
			return &FieldError{"task index", tasks[i].Index, fmt.Sprintf("above %d, that of the task before", tasks[i-1].Index)}
		}
		names[tasks[i].Name] = struct{}{}
	}
	if len(names) != len(tasks) {
		return &FieldError{"task names", len(names), fmt.Sprintf("%d distinct ones", len(tasks))}
	}
	for i, g := range c.SinceTable {
		above := h.Generation + 1
		if i > 0 {
			above = c.SinceTable[i-1]
		}
		if g >= above || g <= h.Horizon {
			return &FieldError{"since", int64(g), fmt.Sprintf("after horizon %d and before %d", h.Horizon, above)}
		}
	}
	if len(c.SinceTable) > maxSinceDistinct {
		return &FieldError{"since generations", len(c.SinceTable), fmt.Sprintf("at most %d distinct", maxSinceDistinct)}
	}
	if c.Since != nil && len(c.Since) != len(c.Owners) {
		return &FieldError{"since entries", len(c.Since), fmt.Sprintf("%d, one an owner", len(c.Owners))}
	}
	for _, s := range c.Since {
		if int(s) > len(c.SinceTable) {
			return &FieldError{"since entry", s, fmt.Sprintf("at most %d", len(c.SinceTable))}
		}
	}
	return validateSlices(tasks, c)
}

func validateSlices(tasks []Task, c *Columns) error {
	n := len(c.Starts)
	for i, s := range c.Starts {
		switch {
		case i == 0 && s != 0:
			return &FieldError{"first slice", s.String(), "to start at 0"}
		case i > 0 && s <= c.Starts[i-1] || s >= KeyspaceEnd:
			return &FieldError{"slice start", s.String(), fmt.Sprintf("above the start before and below %s", KeyspaceEnd)}
		}
	}
	if c.Offsets == nil {
		if len(c.Owners) != n {
			return &FieldError{"owners", len(c.Owners), fmt.Sprintf("%d, one a slice", n)}
		}
	} else if len(c.Offsets) != n+1 || c.Offsets[0] != 0 || int(c.Offsets[n]) != len(c.Owners) {
		return &FieldError{"offsets", len(c.Offsets), fmt.Sprintf("%d, from 0 to %d", n+1, len(c.Owners))}
	}
	for _, o := range c.Owners {
		if int(o) >= len(tasks) {
			return &FieldError{"owner", o, fmt.Sprintf("a position below %d", len(tasks))}
		}
	}
	if c.Offsets == nil {
		return nil
	}
	seen := make([]int32, len(tasks)) // slice number + 1 in which the task was last seen
	for i := range n {
		lo, hi := c.Offsets[i], c.Offsets[i+1]
		if lo >= hi || hi > uint32(len(c.Owners)) || hi-lo > MaxReplicas {
			return &FieldError{"replicas", int64(hi) - int64(lo), fmt.Sprintf("1 to %d in slice %s", MaxReplicas, c.Starts[i])}
		}
		for _, o := range c.Owners[lo:hi] {
			if seen[o] == int32(i+1) {
				return &FieldError{"owner", tasks[o].Name, fmt.Sprintf("once in slice %s", c.Starts[i])}
			}
			seen[o] = int32(i + 1)
		}
	}
	return nil
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

// Newer says whether a should take the place of b: a newer generation, or
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
	pos, ok = a.byName()[name]
	return pos, ok
}

// NumSlices is at least 1.
func (a *Assignment) NumSlices() int { return len(a.c.Starts) }

// NumOwners is the number of replicas of all slices together.
func (a *Assignment) NumOwners() int { return len(a.c.Owners) }

// Slice returns the i-th slice in key order, 0 to NumSlices()-1.
func (a *Assignment) Slice(i int) Slice {
	end := KeyspaceEnd
	if i+1 < len(a.c.Starts) {
		end = a.c.Starts[i+1]
	}
	return Slice{a.c.Starts[i], end}
}

// Replicas returns the owners of the i-th slice.
func (a *Assignment) Replicas(i int) Replicas {
	if a.c.Offsets == nil {
		return Replicas{a, uint32(i), uint32(i) + 1}
	}
	return Replicas{a, a.c.Offsets[i], a.c.Offsets[i+1]}
}

// All goes through the slices in key order.
func (a *Assignment) All() iter.Seq2[Slice, Replicas] {
	return func(yield func(Slice, Replicas) bool) {
		for i := range a.c.Starts {
			if !yield(a.Slice(i), a.Replicas(i)) {
				return
			}
		}
	}
}

// Columns gives the slices in columns, for encoders and algorithms that go
// through all of them. Read only.
func (a *Assignment) Columns() Columns { return a.c }

// Replicas are the tasks of one slice, in the assignment's order. The zero
// value has none.
type Replicas struct {
	a      *Assignment
	lo, hi uint32
}

// Len is how many there are, at least 1 in an assignment.
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
		return r.a.c.SinceTable[s-1]
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

// Has says whether the task at a position of the task table is among them.
func (r Replicas) Has(pos int) bool {
	for i := r.lo; i < r.hi; i++ {
		if int(r.a.c.Owners[i]) == pos {
			return true
		}
	}
	return false
}

// Checksum is an XXH64 over the whole content: equal assignments have equal
// checksums, whatever way they were built. It is computed once.
func (a *Assignment) Checksum() uint64 { return a.sum() }

func (a *Assignment) checksum() uint64 {
	d := xxhash.New()
	buf := make([]byte, 0, 1<<13)
	flush := func(limit int) {
		if len(buf) >= limit {
			d.Write(buf)
			buf = buf[:0]
		}
	}
	u64 := func(v uint64) { buf = binary.LittleEndian.AppendUint64(buf, v); flush(1 << 13) }
	str := func(s string) { u64(uint64(len(s))); buf = append(buf, s...); flush(1 << 13) }
	str(a.h.Job)
	u64(a.h.StoreID)
	u64(uint64(a.h.Generation))
	u64(uint64(a.h.Previous))
	u64(uint64(a.h.Horizon))
	u64(uint64(len(a.tasks)))
	for _, t := range a.tasks {
		str(t.Name)
		u64(t.Incarnation)
		str(t.Address)
		str(t.Zone)
		u64(uint64(t.Index))
		u64(math.Float64bits(t.Weight))
		u64(uint64(t.State))
	}
	u64(uint64(len(a.c.Starts)))
	for i, s := range a.c.Starts {
		u64(uint64(s))
		r := a.Replicas(i)
		// One word for the usual single owner keeps this to a few ns a slice.
		for j := range r.Len() {
			u64(uint64(r.Position(j))<<32 | uint64(r.Len()))
			u64(uint64(r.Since(j)))
		}
	}
	flush(0)
	return d.Sum64()
}
