package assignment

import (
	"slices"
	"sync"
)

// PartFrom is how many slices a whole assignment has at least for those that read parts to be
// sent them: below it, where the whole takes less than half a megabyte, parts are not worth the
// work that they are, since a whole's encoding serves all.
const PartFrom = 1 << 14

// A part of an assignment is what one task needs of it. It is an Assignment of the same
// generation that has of the slices those that the task owns, with all their replicas, as they
// are in the whole. All other keys are in slices that have no replicas: that they are not the
// task's is certain, whose they are is not known. Of the tasks it has those that own something
// in it, the task itself if the whole has it, and one other that can take slices, if the whole
// has one, or else any other.
//
// So a part is a function of the whole and the task's name. Wherever it is cut it is the same,
// has the same checksum, and there are deltas between the parts of one task as there are between
// wholes. What the task may believe of its own keys (owner, replicas, since when, and which
// generation came before) is the same by the part as by the whole.

// Moves are what a part says besides of keys that the task has come to own, or has lost, since
// an earlier generation, Base. Both are nil where that is not known. They are parts without the
// task's own slices: From is of the generation Base, and has the keys that have come, To is of
// the part's generation, and has those that have gone. They are for listeners, and no part of
// the checksum.
type Moves struct{ From, To *Assignment }

// Moves are those of a part, zero if none are known.
func (a *Assignment) Moves() Moves { return a.moves }

// WithMoves is the part with other moves.
func (a *Assignment) WithMoves(m Moves) *Assignment {
	b := *a
	b.moves = m
	return &b
}

// Cut cuts an assignment into parts. The first one takes time by all slices, and the Cut 4 bytes
// a replica from then on; each after it takes time by what is in it. All methods are safe for
// concurrent use.
type Cut struct {
	a       *Assignment
	once    sync.Once
	offsets []uint32 // into slices, by position in the task table, and one more
	slices  []uint32 // the numbers of a task's slices in key order, task after task
}

// NewCut is of a whole assignment.
func NewCut(a *Assignment) *Cut { return &Cut{a: a} }

// sort sorts the slices by task.
func (c *Cut) sort() {
	a := c.a
	c.offsets, c.slices = make([]uint32, len(a.tasks)+1), make([]uint32, len(a.c.Owners))
	for _, o := range a.c.Owners {
		c.offsets[o+1]++
	}
	for i := range a.tasks {
		c.offsets[i+1] += c.offsets[i]
	}
	next := slices.Clone(c.offsets)
	for i := range a.c.Starts {
		r := a.Replicas(i)
		for _, o := range a.c.Owners[r.lo:r.hi] {
			c.slices[next[o]] = uint32(i)
			next[o]++
		}
	}
}

// Part is the one for a task, which may own nothing, or not be there.
func (c *Cut) Part(task string) *Assignment { return c.a.only(task, c.own(task), c.others(task)) }

// MovesSince are those of a task's part since an earlier generation. They are zero if base is
// nil or not of the same job and store, or not earlier.
func (c *Cut) MovesSince(base *Cut, task string) Moves {
	if base == nil || base.a.h.Job != c.a.h.Job || base.a.h.StoreID != c.a.h.StoreID || base.a.h.Generation >= c.a.h.Generation {
		return Moves{}
	}
	then, now := base.own(task), c.own(task)
	return Moves{From: base.a.only(task, less(now, then), nil), To: c.a.only(task, less(then, now), nil)}
}

// own are the slices of a task.
func (c *Cut) own(task string) []Slice {
	pos, ok := c.a.names[task]
	if !ok {
		return nil
	}
	c.once.Do(c.sort)
	numbers := c.slices[c.offsets[pos]:c.offsets[pos+1]]
	own := make([]Slice, len(numbers))
	for i, n := range numbers {
		own[i] = c.a.Slice(int(n))
	}
	return own
}

// others are the positions of the task itself and of another one, as far as they are there.
func (c *Cut) others(task string) (positions []uint32) {
	other := -1
	for i := range c.a.tasks {
		t := &c.a.tasks[i]
		if t.Name == task {
			continue
		}
		if t.State == TaskRunning || t.State == TaskStarting {
			other = i
			break
		}
		if other < 0 {
			other = i
		}
	}
	if other >= 0 {
		positions = append(positions, uint32(other))
	}
	if pos, ok := c.a.names[task]; ok {
		positions = append(positions, uint32(pos))
	}
	return positions
}

// less returns the keys of a that are not in b; both are in order and apart.
func less(a, b []Slice) (out []Slice) {
	for _, s := range a {
		for len(b) > 0 && b[0].End <= s.Start {
			b = b[1:]
		}
		for _, x := range b {
			if x.Start >= s.End {
				break
			}
			if s.Start < x.Start {
				out = append(out, Slice{s.Start, x.Start})
			}
			s.Start = min(x.End, s.End)
		}
		if s.Start < s.End {
			out = append(out, s)
		}
	}
	return out
}

// only is the assignment without the owners of other keys than those of the ranges, which are
// in order and apart, and with the tasks that own these and those at other positions.
func (a *Assignment) only(task string, ranges []Slice, positions []uint32) *Assignment {
	h := a.h
	h.Part = task
	c := Columns{Offsets: []uint32{0}, SinceTable: a.c.SinceTable}
	add := func(start SliceKey, r Replicas) {
		c.Starts = append(c.Starts, start)
		c.Owners = append(c.Owners, a.c.Owners[r.lo:r.hi]...)
		if a.c.Since != nil {
			c.Since = append(c.Since, a.c.Since[r.lo:r.hi]...)
		}
		c.Offsets = append(c.Offsets, uint32(len(c.Owners)))
	}
	at := SliceKey(0)
	for _, s := range ranges {
		if at < s.Start {
			add(at, Replicas{})
		}
		for at = s.Start; at < s.End; {
			i := a.Find(at)
			add(at, a.Replicas(i))
			at = min(a.Slice(i).End, s.End)
		}
	}
	if at < KeyspaceEnd {
		add(at, Replicas{})
	}
	positions = append(positions, c.Owners...)
	slices.Sort(positions)
	positions = slices.Compact(positions)
	tasks, names := make([]Task, len(positions)), make(map[string]int, len(positions))
	for i, pos := range positions {
		tasks[i] = a.tasks[pos]
		names[tasks[i].Name] = i
	}
	for i, o := range c.Owners {
		at, _ := slices.BinarySearch(positions, o)
		c.Owners[i] = uint32(at)
	}
	return build(h, tasks, names, c)
}
