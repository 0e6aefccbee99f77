package assignment

import (
	"slices"
	"sync"
)

// PartFrom is how many slices a whole assignment has at least for those that read parts to be
// sent them: below it, where the whole takes less than half a megabyte, parts are not worth the
// work that they are, since a whole's encoding serves all.
const PartFrom = 1 << 14

// ValidatePart reports whether a part can be asked for by this name: that of a task, or none.
func ValidatePart(task string) error {
	if task != "" && !ValidToken(task, MaxNameLen) {
		return &FieldError{Field: "part", Value: task, Allowed: "a task's name, or none"}
	}
	return nil
}

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
// an earlier generation, Base. Each is nil if there are none, or where that is not known. They are parts without the
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
	offsets []uint32 // into numbers, by position in the task table, and one more
	numbers []uint32 // those of a task's slices in key order, task after task
	others  []uint32 // the positions of up to two tasks, of which parts have one that is not their own
}

// NewCut is of a whole assignment.
func NewCut(a *Assignment) *Cut { return &Cut{a: a.inColumns()} }

// sort sorts the slices by task.
func (c *Cut) sort() {
	a := c.a
	c.offsets, c.numbers = make([]uint32, len(a.tasks)+1), make([]uint32, len(a.c.Owners))
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
			c.numbers[next[o]] = uint32(i)
			next[o]++
		}
	}
	c.findOthers()
}

// findOthers finds the first two tasks that can take slices, or if there are fewer than two
// then after them the first of the rest.
func (c *Cut) findOthers() {
	for _, takes := range []bool{true, false} {
		for i := range c.a.tasks {
			if len(c.others) < 2 && takes == c.a.tasks[i].State.TakesSlices() {
				c.others = append(c.others, uint32(i))
			}
		}
	}
}

// Part is the one for a task, which may own nothing, or not be there.
func (c *Cut) Part(task string) *Assignment {
	part, _ := c.own(task)
	return part
}

// Since is the part for a task that holds a part of an earlier generation, base, or of no known
// one, nil. held is the part of base, nil if that is nil or not of the same job and store, or not
// earlier; otherwise part has its moves since then.
func (c *Cut) Since(base *Cut, task string) (part, held *Assignment) {
	part, now := c.own(task)
	if base == nil || !base.a.h.Comparable(&c.a.h) || base.a.h.Generation >= c.a.h.Generation {
		return part, nil
	}
	held, then := base.own(task)
	part.moves = Moves{From: base.moved(task, less(now, then)), To: c.moved(task, less(then, now))}
	return part, held
}

// own is the part for a task, and its slices.
func (c *Cut) own(task string) (*Assignment, []Slice) {
	c.once.Do(c.sort)
	var numbers []uint32
	pos, ok := c.a.names[task]
	if ok {
		numbers = c.numbers[c.offsets[pos]:c.offsets[pos+1]]
	}
	own, p := make([]Slice, len(numbers)), newPortion(c.a, len(numbers))
	for i, n := range numbers {
		own[i] = c.a.Slice(int(n))
		p.add(own[i], int(n))
	}
	var besides []uint32
	if ok {
		besides = append(besides, uint32(pos))
	}
	for _, o := range c.others {
		if !ok || o != uint32(pos) {
			besides = append(besides, o)
			break
		}
	}
	return p.build(task, besides), own
}

// moved is what moves say of ranges of keys, which are in order and apart.
func (c *Cut) moved(task string, ranges []Slice) *Assignment {
	if len(ranges) == 0 {
		return nil
	}
	p := newPortion(c.a, len(ranges))
	for _, s := range ranges {
		for s.Start < s.End {
			i := c.a.Find(s.Start)
			end := min(c.a.Slice(i).End, s.End)
			p.add(Slice{s.Start, end}, i)
			s.Start = end
		}
	}
	return p.build(task, nil)
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

// portion collects what a part has of an assignment.
type portion struct {
	a  *Assignment
	c  Columns
	at SliceKey // the end of what it has
}

func newPortion(a *Assignment, slices int) *portion {
	p := &portion{a: a, c: Columns{
		Starts: make([]SliceKey, 0, 2*slices+1), Offsets: make([]uint32, 1, 2*slices+2), Owners: make([]uint32, 0, slices),
		SinceTable: a.c.SinceTable,
	}}
	if a.c.Since != nil {
		p.c.Since = make([]uint8, 0, slices)
	}
	return p
}

// add adds keys of the i-th slice, which are after those that it has, with their replicas.
func (p *portion) add(s Slice, i int) {
	p.skip(s.Start)
	r := p.a.Replicas(i)
	p.c.Starts = append(p.c.Starts, s.Start)
	p.c.Owners = append(p.c.Owners, p.a.c.Owners[r.lo:r.hi]...)
	if p.a.c.Since != nil {
		p.c.Since = append(p.c.Since, p.a.c.Since[r.lo:r.hi]...)
	}
	p.c.Offsets = append(p.c.Offsets, uint32(len(p.c.Owners)))
	p.at = s.End
}

// skip adds the keys up to one without replicas, if there are any.
func (p *portion) skip(to SliceKey) {
	if p.at < to {
		p.c.Starts = append(p.c.Starts, p.at)
		p.c.Offsets = append(p.c.Offsets, uint32(len(p.c.Owners)))
	}
}

// build makes the part of it, in which all other keys have no replicas. It has the tasks that
// own something, and those at other positions.
func (p *portion) build(task string, positions []uint32) *Assignment {
	p.skip(KeyspaceEnd)
	a, c := p.a, p.c
	h := a.h
	h.Part = task
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
