package assignment

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// Apply returns the assignment that d makes of base. It returns an error that
// matches ErrBase when d is on another assignment, and one that names what is
// wrong when d makes none; base is untouched.
//
// Where few of many slices change it takes time and memory by these, and the result refers to base
// and to d, which must not change afterwards (see patch). Otherwise what stays is copied in runs, and
// if d changes owners alone, both share the starts. What stays is not validated again.
func Apply(base *Assignment, d *Delta) (*Assignment, error) {
	return applyWithin(base, d, maxPatch)
}

// applyWithin is Apply with a bound for patches.
func applyWithin(base *Assignment, d *Delta, most func(slices int) int) (*Assignment, error) {
	if !base.h.Comparable(&d.H) || base.h.Generation != d.Base {
		return nil, fmt.Errorf("%w: it is on generation %d of %v; here is generation %d of %v", ErrBase, d.Base, &d.H, base.h.Generation, &base.h)
	}
	m := merger{base: base, d: d, tasks: base.tasks, names: base.names}
	a, err := m.apply(most)
	if err != nil {
		return nil, d.H.wrap(err)
	}
	return a, nil
}

func applyTasks(base []Task, d *Delta) ([]Task, error) {
	for i := 1; i < len(d.Put); i++ {
		if d.Put[i].Index <= d.Put[i-1].Index {
			return nil, &FieldError{"delta put task index", d.Put[i].Index, fmt.Sprintf("above %d, that of the one before", d.Put[i-1].Index)}
		}
	}
	drop := make(map[uint32]bool, len(d.Drop))
	for _, x := range d.Drop {
		drop[x] = true
	}
	out := make([]Task, 0, len(base)+len(d.Put))
	put := d.Put
	for _, t := range base {
		for len(put) > 0 && put[0].Index < t.Index {
			out, put = append(out, put[0]), put[1:]
		}
		switch {
		case len(put) > 0 && put[0].Index == t.Index:
			out, put = append(out, put[0]), put[1:]
		case drop[t.Index]:
			delete(drop, t.Index)
		default:
			out = append(out, t)
		}
	}
	if len(drop) > 0 {
		return nil, &FieldError{"delta drop", len(drop), "only indexes of tasks that are there and not put"}
	}
	return append(out, put...), nil
}

// merger puts together what stays of base's slices and a delta's.
type merger struct {
	base  *Assignment
	d     *Delta
	tasks []Task
	names map[string]int
	out   Columns
	made  int // slices of out so far
	// sameStarts is whether all slices begin where base's do, and have as many owners.
	sameStarts bool
	in         renumbering
}

// renumbering is what stands for one assignment's tasks and since generations in another.
type renumbering struct {
	owner     []uint32 // position of each task, or gone; nil if all have the same one
	since     sinceNumbers
	sameSince bool // all have the same one
}

const (
	gone   = math.MaxUint32
	absent = math.MaxUint8
)

// renumber finds what of a is in other tables and under another horizon; it is quick if the tables
// of tasks are one.
func (a *Assignment) renumber(tasks []Task, horizon Generation, sinceTable []Generation) (in renumbering) {
	if !a.samePositions(tasks) {
		j := 0
		in.owner = make([]uint32, len(a.tasks))
		for i := range a.tasks { // both are in order of Index
			for j < len(tasks) && tasks[j].Index < a.tasks[i].Index {
				j++
			}
			in.owner[i] = gone
			if j < len(tasks) && tasks[j].Index == a.tasks[i].Index {
				in.owner[i] = uint32(j)
			}
		}
	}
	in.since = numbersIn(a.h.Horizon, a.c.SinceTable, horizon, sinceTable)
	in.sameSince = true
	for i := range len(a.c.SinceTable) + 1 {
		in.sameSince = in.sameSince && int(in.since[i]) == i
	}
	return in
}

// sinceNumbers are what stands for each number of a generation, by one table and horizon, in another:
// 0 if it is not told apart from the other's horizon, absent if nothing does.
type sinceNumbers [256]uint8

func numbersIn(horizon Generation, table []Generation, horizonIn Generation, tableIn []Generation) (in sinceNumbers) {
	if horizon > horizonIn {
		in[0] = absent
		if j := slices.Index(tableIn, horizon); j >= 0 {
			in[0] = uint8(j + 1)
		}
	}
	j := 0
	for i, g := range table { // both are newest first
		if g <= horizonIn {
			break
		}
		for j < len(tableIn) && tableIn[j] > g {
			j++
		}
		in[i+1] = absent
		if j < len(tableIn) && tableIn[j] == g {
			in[i+1] = uint8(j + 1)
		}
	}
	return in
}

// apply validates the delta and makes the assignment.
func (m *merger) apply(most func(slices int) int) (*Assignment, error) {
	if err := m.d.H.validate(); err != nil {
		return nil, err
	}
	if err := validateSince(&m.d.H, &m.d.Slices); err != nil {
		return nil, err
	}
	if err := m.changeTasks(); err != nil {
		return nil, err
	}
	if err := m.d.check(m.base, m.tasks); err != nil {
		return nil, err
	}
	if a, err := m.patched(most); a != nil || err != nil {
		return a, err
	}
	m.base = m.base.inColumns()
	return m.merge()
}

// merge makes the assignment in columns.
func (m *merger) merge() (*Assignment, error) {
	if err := m.mergeColumns(); err != nil {
		return nil, err
	}
	a := newAssignment(m.d.H, m.tasks, m.names, m.out)
	if m.sameStarts {
		a.lines, a.shift = m.base.lines, m.base.shift
	} else {
		a.buildIndexFrom(m.base, m.d.Edits)
	}
	return a, nil
}

func (m *merger) mergeColumns() error {
	a, d := m.base, m.d
	m.in = a.renumber(m.tasks, d.H.Horizon, d.Slices.SinceTable)
	if err := m.allocate(); err != nil {
		return err
	}
	i, created, inner := 0, 0, d.Slices.Starts
	for _, e := range d.Edits {
		if err := m.keep(i, i+int(e.Keep)); err != nil {
			return err
		}
		i += int(e.Keep)
		first := m.made
		m.take(a.c.Starts[i], inner[:e.New-1], created)
		i, created, inner = i+int(e.Old), created+int(e.New), inner[e.New-1:]
		if last := m.out.Starts[m.made-1]; last >= startOrEnd(a, i) {
			return &FieldError{"delta slice start", last.String(), "below " + startOrEnd(a, i).String() + ", where its edit ends"}
		}
		if err := m.out.validateStarts(first, m.made); err != nil {
			return err
		}
	}
	return m.keep(i, a.NumSlices())
}

// changeTasks makes the table of tasks.
func (m *merger) changeTasks() (err error) {
	if len(m.d.Put)+len(m.d.Drop) == 0 {
		return nil
	}
	if m.tasks, err = applyTasks(m.base.tasks, m.d); err != nil {
		return err
	}
	m.names, err = validateTasks(m.tasks)
	return err
}

// check looks at what merger relies on, with the tasks that there are to be.
func (d *Delta) check(base *Assignment, tasks []Task) error {
	c := &d.Slices
	var kept, created uint64
	for _, e := range d.Edits {
		kept += uint64(e.Keep) + uint64(e.Old)
		created += uint64(e.New)
		switch {
		case e.Old == 0 || e.New == 0:
			return &FieldError{"delta edit", e.New, "one old and one new slice, or more"}
		case kept > uint64(base.NumSlices()):
			return &FieldError{"delta edit", kept, fmt.Sprintf("within the %d slices of the base", base.NumSlices())}
		case created > MaxSlices:
			return &FieldError{"delta slices", created, fmt.Sprintf("at most %d", MaxSlices)}
		}
	}
	n := int(created)
	if len(c.Starts) != n-len(d.Edits) ||
		c.Offsets == nil && len(c.Owners) != n ||
		c.Offsets != nil && (len(c.Offsets) != n+1 || c.Offsets[0] != 0 || int(c.Offsets[n]) != len(c.Owners)) ||
		!slices.IsSorted(c.Offsets) {
		return &FieldError{"delta columns", len(c.Starts), fmt.Sprintf("columns for %d slices in %d edits", n, len(d.Edits))}
	}
	owners := Columns{Offsets: c.Offsets, Owners: c.Owners}
	return owners.validateOwners(&d.H, tasks, n)
}

// allocate makes room for the columns, or shares those that stay as they are.
func (m *merger) allocate() error {
	a, in, out := m.base, &m.d.Slices, &m.out
	numSlices, numOwners := a.NumSlices(), a.NumOwners()+len(in.Owners)
	m.sameStarts = true
	i, created, inner := 0, 0, in.Starts
	for _, e := range m.d.Edits {
		i += int(e.Keep)
		lo, hi := a.c.owners(i, i+int(e.Old))
		numSlices += int(e.New) - int(e.Old)
		numOwners -= int(hi - lo)
		m.sameStarts = m.sameStarts && e.Old == e.New && slices.Equal(inner[:e.New-1], a.c.Starts[i+1:i+int(e.Old)])
		for j := 0; m.sameStarts && j < int(e.New); j++ {
			lo, hi := in.owners(created+j, created+j+1)
			m.sameStarts = int(hi-lo) == a.Replicas(i+j).Len()
		}
		i, created, inner = i+int(e.Old), created+int(e.New), inner[e.New-1:]
	}
	if err := validateSizes(numSlices, numOwners); err != nil {
		return err
	}
	out.SinceTable = in.SinceTable
	out.Owners = make([]uint32, 0, numOwners)
	if a.c.Since != nil || m.in.since[0] != 0 || in.Since != nil {
		out.Since = make([]uint8, 0, numOwners)
	}
	if m.sameStarts {
		out.Starts, out.Offsets = a.c.Starts, a.c.Offsets
		return nil
	}
	out.Starts = make([]SliceKey, 0, numSlices)
	if a.c.Offsets != nil || in.Offsets != nil {
		out.Offsets = make([]uint32, 1, numSlices+1)
	}
	return nil
}

// keep copies slices of base, by number from i to below end.
func (m *merger) keep(i, end int) error {
	if i == end {
		return nil
	}
	a, out := m.base, &m.out
	if !m.sameStarts {
		out.Starts = append(out.Starts, a.c.Starts[i:end]...)
		out.addOffsets(&a.c, i, end)
	}
	m.made += end - i
	lo, hi := a.c.owners(i, end)
	at := len(out.Owners)
	out.addOwners(&a.c, lo, hi)
	if m.in.owner != nil {
		for j, pos := range out.Owners[at:] {
			if m.in.owner[pos] == gone {
				return &FieldError{"delta drop", a.tasks[pos].Name, "a task that owns nothing any more"}
			}
			out.Owners[at+j] = m.in.owner[pos]
		}
	}
	if out.Since == nil || m.in.sameSince {
		return nil
	}
	since := out.Since[at:]
	for j, s := range since {
		since[j] = m.in.since[s]
	}
	if bytes.IndexByte(since, absent) >= 0 {
		return &FieldError{"delta since table", len(m.d.Slices.SinceTable), "every generation that a kept slice needs"}
	}
	return nil
}

// take copies slices of the delta, by number from i on, the first of which begins at start and
// the others at inner.
func (m *merger) take(start SliceKey, inner []SliceKey, i int) {
	c, out, end := &m.d.Slices, &m.out, i+1+len(inner)
	if !m.sameStarts {
		out.Starts = append(append(out.Starts, start), inner...)
		out.addOffsets(c, i, end)
	}
	m.made += end - i
	lo, hi := c.owners(i, end)
	out.addOwners(c, lo, hi)
}

// owners is where the owners of slices are, by number from i to below end.
func (c *Columns) owners(i, end int) (lo, hi uint32) {
	if c.Offsets == nil {
		return uint32(i), uint32(end)
	}
	return c.Offsets[i], c.Offsets[end]
}

// addSlices adds slices of other columns, by number from i to below end, but for their starts.
func (c *Columns) addSlices(from *Columns, i, end int) {
	c.addOffsets(from, i, end)
	lo, hi := from.owners(i, end)
	c.addOwners(from, lo, hi)
}

// addOwners adds owners of other columns, by position from lo to below hi.
func (c *Columns) addOwners(from *Columns, lo, hi uint32) {
	c.Owners = append(c.Owners, from.Owners[lo:hi]...)
	switch {
	case c.Since == nil:
	case from.Since == nil:
		c.Since = append(c.Since, make([]uint8, hi-lo)...)
	default:
		c.Since = append(c.Since, from.Since[lo:hi]...)
	}
}

// addOffsets adds those of slices of other columns, by number from i to below end, unless each
// slice has one owner in both.
func (c *Columns) addOffsets(from *Columns, i, end int) {
	if c.Offsets == nil {
		return
	}
	at := c.Offsets[len(c.Offsets)-1]
	if from.Offsets == nil {
		for j := range uint32(end - i) {
			c.Offsets = append(c.Offsets, at+j+1)
		}
		return
	}
	n, more := len(c.Offsets), at-from.Offsets[i]
	c.Offsets = append(c.Offsets, from.Offsets[i+1:end+1]...)
	for j := n; j < len(c.Offsets); j++ {
		c.Offsets[j] += more
	}
}
