package assignment

import (
	"errors"
	"fmt"
	"slices"
)

// ErrBase is matched by Apply's error when the delta is not on the assignment given.
var ErrBase = errors.New("delta is on another assignment")

// Delta turns the assignment of generation Base into that of H.Generation.
type Delta struct {
	H    Header
	Base Generation
	// Put holds tasks that are new or changed, in order of Index; each takes the
	// place of the task with its index. Drop holds the indexes of those gone.
	Put  []Task
	Drop []uint32
	// Edits in key order and apart.
	Edits []Edit
	// Slices are the new ones, edit after edit; owners are positions in the new
	// table. Starts leaves out the first slice of each edit, which begins where
	// the first slice that it replaces does.
	Slices Columns
}

// Edit replaces slices of the base, by number, with new ones that cover the
// same keys.
type Edit struct {
	// Keep is how many slices of the base stay as they are since the edit before.
	Keep uint32
	// Old slices make way for New ones, each at least 1.
	Old, New uint32
}

// Diff returns what turns base into next; both must be of one job and store, and both whole or
// parts for one task.
// Its size follows the number of slices that differ. If the DeltaSum of base is known, that of next is
// afterwards.
func Diff(base, next *Assignment) (*Delta, error) {
	if !base.h.Comparable(&next.h) {
		return nil, fmt.Errorf("%w: %v against %v", ErrBase, &base.h, &next.h)
	}
	base, next = base.inColumns(), next.inColumns()
	d := &Delta{H: next.h, Base: base.h.Generation}
	d.diffTasks(base, next)
	d.Slices.SinceTable = next.c.SinceTable
	c := comparison{base, next, base.renumber(next.tasks, next.h.Horizon, next.c.SinceTable)}
	i, j, kept := 0, 0, 0
	for i < base.NumSlices() && j < next.NumSlices() {
		// Here both begin at the same key.
		if c.same(i, j) {
			i, j, kept = i+1, j+1, kept+1
			continue
		}
		old, first := i, j
		i, j = c.skipDifferent(i, j)
		d.Edits = append(d.Edits, Edit{uint32(kept), uint32(i - old), uint32(j - first)})
		d.copySlices(next, first, j)
		kept = 0
	}
	d.Slices.tidy()
	d.follow(base, next, &c.in.since)
	return d, nil
}

// comparison is of the slices of two assignments.
type comparison struct {
	base, next *Assignment
	in         renumbering // of base in next
}

// skipDifferent moves both on, at least by one slice, until they begin a slice
// at the same key and agree on it.
func (c *comparison) skipDifferent(i, j int) (int, int) {
	i, j = i+1, j+1
	for {
		si, sj := startOrEnd(c.base, i), startOrEnd(c.next, j)
		switch {
		case si < sj:
			i++
		case sj < si:
			j++
		case si == KeyspaceEnd || c.same(i, j):
			return i, j
		default:
			i, j = i+1, j+1
		}
	}
}

func startOrEnd(a *Assignment, i int) SliceKey {
	if i < len(a.c.Starts) {
		return a.c.Starts[i]
	}
	return KeyspaceEnd
}

// same compares slices that begin at the same key: end, owners, and since
// when they own as it reads under next's horizon.
func (c *comparison) same(i, j int) bool {
	a, b := &c.base.c, &c.next.c
	lo, hi := a.owners(i, i+1)
	at, end := b.owners(j, j+1)
	if startOrEnd(c.base, i+1) != startOrEnd(c.next, j+1) || hi-lo != end-at {
		return false
	}
	for ; lo < hi; lo, at = lo+1, at+1 {
		owner, was, is := a.Owners[lo], uint8(0), uint8(0)
		if c.in.owner != nil {
			owner = c.in.owner[owner]
		}
		if a.Since != nil {
			was = a.Since[lo]
		}
		if b.Since != nil {
			is = b.Since[at]
		}
		if owner != b.Owners[at] || c.in.since[was] != is {
			return false
		}
	}
	return true
}

func (d *Delta) diffTasks(base, next *Assignment) {
	i, j := 0, 0
	for i < len(base.tasks) || j < len(next.tasks) {
		switch {
		case j == len(next.tasks) || i < len(base.tasks) && base.tasks[i].Index < next.tasks[j].Index:
			d.Drop = append(d.Drop, base.tasks[i].Index)
			i++
		case i == len(base.tasks) || next.tasks[j].Index < base.tasks[i].Index:
			d.Put = append(d.Put, next.tasks[j])
			j++
		default:
			if base.tasks[i] != next.tasks[j] {
				d.Put = append(d.Put, next.tasks[j])
			}
			i, j = i+1, j+1
		}
	}
}

func (d *Delta) copySlices(a *Assignment, from, to int) {
	c := &d.Slices
	if c.Offsets == nil {
		c.Offsets = []uint32{0}
	}
	lo, hi := a.c.owners(from, to)
	c.Starts = append(c.Starts, a.c.Starts[from+1:to]...)
	c.Owners = append(c.Owners, a.c.Owners[lo:hi]...)
	if a.c.Since == nil {
		c.Since = append(c.Since, make([]uint8, hi-lo)...)
	} else {
		c.Since = append(c.Since, a.c.Since[lo:hi]...)
	}
	c.addOffsets(&a.c, from, to)
}

// tidy drops columns that say nothing.
func (c *Columns) tidy() {
	c.tidyOffsets()
	if !slices.ContainsFunc(c.Since, func(s uint8) bool { return s != 0 }) {
		c.Since = nil
	}
}

// tidyOffsets drops the offsets if each slice has one owner.
func (c *Columns) tidyOffsets() {
	if c.Offsets == nil || len(c.Owners) != len(c.Offsets)-1 {
		return
	}
	for i, at := range c.Offsets {
		if int(at) != i { // a part has slices without owners
			return
		}
	}
	c.Offsets = nil
}
