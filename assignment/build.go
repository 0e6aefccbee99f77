package assignment

import (
	"fmt"
	"slices"
)

// Placement is which tasks own which slices, without the history that an
// Assignment carries: what a balancing algorithm decides. Owners are positions
// in a task table. Offsets may be nil when each slice has one owner.
type Placement struct {
	Starts  []SliceKey
	Offsets []uint32
	Owners  []uint32
}

// Add appends a slice that begins at start.
func (p *Placement) Add(start SliceKey, owners ...uint32) {
	if p.Offsets == nil {
		p.Offsets = append(p.Offsets, 0)
		for range p.Starts {
			p.Offsets = append(p.Offsets, p.Offsets[len(p.Offsets)-1]+1)
		}
	}
	p.Starts = append(p.Starts, start)
	p.Owners = append(p.Owners, owners...)
	p.Offsets = append(p.Offsets, uint32(len(p.Owners)))
}

// Range returns the owners of the i-th slice.
func (p *Placement) Range(i int) []uint32 {
	if p.Offsets == nil {
		return p.Owners[i : i+1 : i+1]
	}
	return p.Owners[p.Offsets[i]:p.Offsets[i+1]:p.Offsets[i+1]]
}

// Successor builds the assignment that follows prev, or the first if prev is
// nil. It works out since when each owner owns each slice: an owner that held
// every key of the slice in prev as the same incarnation keeps the newest Since
// of the parts, any other owns it since h.Generation. When too many different
// generations are left it advances the horizon, which only makes some ownership
// look younger than it is. h.Previous and h.Horizon are set here; h's job and
// store id must be prev's, which must be whole.
//
// Tasks must be in order of Index; tasks and placement belong to the assignment
// afterwards. Errors are those of New.
func Successor(prev *Assignment, h Header, tasks []Task, p Placement) (*Assignment, error) {
	h.Previous, h.Horizon, h.Part = 0, 0, ""
	if prev != nil {
		prev = prev.inColumns()
		h.Previous, h.Horizon = prev.h.Generation, prev.h.Horizon
		if !h.Comparable(&prev.h) {
			return nil, fmt.Errorf("assignment of %v cannot follow one of %v", &h, &prev.h)
		}
	}
	c := Columns{Starts: p.Starts, Offsets: p.Offsets, Owners: p.Owners}
	// The slices must make sense before they are gone through.
	names, err := validate(&h, tasks, &c)
	if err != nil {
		return nil, h.wrap(err)
	}
	h.Horizon = c.setSince(h.Horizon, sinceOf(prev, h, tasks, c))
	return build(h, tasks, names, c), nil
}

// sinceOf returns one generation an owner.
func sinceOf(prev *Assignment, h Header, tasks []Task, c Columns) []Generation {
	since := make([]Generation, len(c.Owners))
	before := make([]int32, len(tasks)) // position in prev, -1 if it was not there
	for i, t := range tasks {
		before[i] = -1
		if prev != nil {
			if pos, ok := prev.Position(t.Name); ok && prev.tasks[pos].Incarnation == t.Incarnation {
				before[i] = int32(pos)
			}
		}
	}
	view := Assignment{c: c}
	old := 0
	for i := range c.Starts {
		s, r := view.Slice(i), view.Replicas(i)
		for prev != nil && old+1 < len(prev.c.Starts) && prev.c.Starts[old+1] <= s.Start {
			old++
		}
		for j := range r.Len() {
			at := r.lo + uint32(j)
			since[at] = h.Generation
			if pos := before[c.Owners[at]]; pos >= 0 {
				since[at] = continuous(prev, old, s, uint32(pos), h.Generation)
			}
		}
	}
	return since
}

// continuous returns the newest Since of a task over the slices of prev that
// cover s, the first of which is number i, or otherwise if it did not own all of s.
func continuous(prev *Assignment, i int, s Slice, pos uint32, otherwise Generation) Generation {
	var newest Generation
	for ; i < len(prev.c.Starts) && prev.c.Starts[i] < s.End; i++ {
		r := prev.Replicas(i)
		j := slices.Index(prev.c.Owners[r.lo:r.hi], pos)
		if j < 0 {
			return otherwise
		}
		newest = max(newest, r.Since(j))
	}
	return newest
}

// setSince fills in the since columns from one generation an owner, and returns
// the horizon, advanced as far as needed to be left with few enough different
// generations.
func (c *Columns) setSince(horizon Generation, since []Generation) Generation {
	var table []Generation // the newest ones, oldest first, and one more than fit
	last := horizon
	for _, g := range since {
		if g != last && g > horizon { // neighbours are often alike
			if at, ok := slices.BinarySearch(table, g); !ok {
				table = slices.Insert(table, at, g)
				table = table[max(len(table)-maxSinceDistinct-1, 0):]
			}
			last = g
		}
	}
	if len(table) > maxSinceDistinct {
		horizon, table = table[0], table[1:]
	}
	c.Since = make([]uint8, len(since))
	for i, g := range since {
		if g <= horizon {
			continue
		}
		if i > 0 && g == since[i-1] {
			c.Since[i] = c.Since[i-1]
		} else {
			at, _ := slices.BinarySearch(table, g)
			c.Since[i] = uint8(len(table) - at)
		}
	}
	slices.Reverse(table)
	c.SinceTable = table
	return horizon
}

// Equal cuts the keyspace into n slices of equal width, as nearly as slice
// starts allow that are kept round so that they encode shortly: 1 to MaxSlices.
func Equal(n int) []SliceKey {
	n = min(max(n, 1), MaxSlices)
	starts := make([]SliceKey, n)
	// 2^40 cells; widths differ by less than a part in 2^17 even at MaxSlices.
	const cells, cell = 1 << 40, KeyspaceEnd >> 40
	for i := range starts {
		starts[i] = SliceKey(uint64(i)*cells/uint64(n)) * cell
	}
	return starts
}
