package assignment

import (
	"errors"
	"fmt"
	"math"
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
// Its size follows the number of slices that differ.
func Diff(base, next *Assignment) (*Delta, error) {
	if !base.h.Comparable(&next.h) {
		return nil, fmt.Errorf("%w: %v against %v", ErrBase, &base.h, &next.h)
	}
	d := &Delta{H: next.h, Base: base.h.Generation}
	d.diffTasks(base, next)
	d.Slices.SinceTable = next.c.SinceTable
	i, j, kept := 0, 0, 0
	for i < base.NumSlices() && j < next.NumSlices() {
		// Here both begin at the same key.
		if sameSlice(base, i, next, j) {
			i, j, kept = i+1, j+1, kept+1
			continue
		}
		old, first := i, j
		i, j = skipDifferent(base, i, next, j)
		d.Edits = append(d.Edits, Edit{uint32(kept), uint32(i - old), uint32(j - first)})
		d.copySlices(next, first, j)
		kept = 0
	}
	d.Slices.tidy()
	return d, nil
}

// skipDifferent moves both on, at least by one slice, until they begin a slice
// at the same key and agree on it.
func skipDifferent(base *Assignment, i int, next *Assignment, j int) (int, int) {
	i, j = i+1, j+1
	for {
		si, sj := startOrEnd(base, i), startOrEnd(next, j)
		switch {
		case si < sj:
			i++
		case sj < si:
			j++
		case si == KeyspaceEnd || sameSlice(base, i, next, j):
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

// sameSlice compares slices that begin at the same key: end, owners, and since
// when they own as it reads under next's horizon.
func sameSlice(base *Assignment, i int, next *Assignment, j int) bool {
	if base.Slice(i).End != next.Slice(j).End {
		return false
	}
	r, s := base.Replicas(i), next.Replicas(j)
	if r.Len() != s.Len() {
		return false
	}
	for k := range r.Len() {
		if base.tasks[r.Position(k)].Index != next.tasks[s.Position(k)].Index ||
			max(r.Since(k), next.h.Horizon) != s.Since(k) {
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
	for i := from; i < to; i++ {
		r := a.Replicas(i)
		if i > from {
			c.Starts = append(c.Starts, a.c.Starts[i])
		}
		c.Owners = append(c.Owners, a.c.Owners[r.lo:r.hi]...)
		if a.c.Since == nil {
			c.Since = append(c.Since, make([]uint8, r.Len())...)
		} else {
			c.Since = append(c.Since, a.c.Since[r.lo:r.hi]...)
		}
		c.Offsets = append(c.Offsets, uint32(len(c.Owners)))
	}
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

// Apply returns the assignment that d makes of base. It returns an error that
// matches ErrBase when d is on another assignment, and one that names what is
// wrong when d makes none; base is untouched.
func Apply(base *Assignment, d *Delta) (*Assignment, error) {
	if !base.h.Comparable(&d.H) || base.h.Generation != d.Base {
		return nil, fmt.Errorf("%w: it is on generation %d of %v; here is generation %d of %v", ErrBase, d.Base, &d.H, base.h.Generation, &base.h)
	}
	tasks, err := applyTasks(base.tasks, d)
	if err != nil {
		return nil, err
	}
	if err := d.check(base); err != nil {
		return nil, err
	}
	m := merger{base: base, d: d, tasks: tasks}
	if err := m.run(); err != nil {
		return nil, err
	}
	return New(d.H, tasks, m.out)
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

// check looks at what merger relies on; New validates the rest.
func (d *Delta) check(base *Assignment) error {
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
		c.Since != nil && len(c.Since) != len(c.Owners) || !slices.IsSorted(c.Offsets) {
		return &FieldError{"delta columns", len(c.Starts), fmt.Sprintf("columns for %d slices in %d edits", n, len(d.Edits))}
	}
	if n := len(c.Owners) + base.NumOwners(); n > 2*MaxOwnerships {
		return &FieldError{"owners", n, fmt.Sprintf("at most %d", MaxOwnerships)}
	}
	return nil
}

// merger copies base's slices, with the delta's edits carried out.
type merger struct {
	base  *Assignment
	d     *Delta
	tasks []Task
	out   Columns
	owner []uint32 // new position of each of base's tasks
	since []uint8  // new number of each of base's since generations
}

const (
	gone   = math.MaxUint32 // in owner
	absent = math.MaxUint8  // in since
)

func (m *merger) run() error {
	m.renumber()
	a, d := m.base, m.d
	c := &m.out
	c.Starts = make([]SliceKey, 0, a.NumSlices()+len(d.Slices.Starts))
	c.Owners = make([]uint32, 0, a.NumOwners()+len(d.Slices.Owners))
	c.Since = make([]uint8, 0, cap(c.Owners))
	c.Offsets = make([]uint32, 1, cap(c.Starts)+len(d.Edits)+1)
	c.SinceTable = d.Slices.SinceTable
	i, created, inner := 0, uint32(0), d.Slices.Starts
	for _, e := range d.Edits {
		for end := i + int(e.Keep); i < end; i++ {
			if err := m.keep(i); err != nil {
				return err
			}
		}
		// New finds starts that leave the edit's range: they are out of order.
		c.Starts = append(c.Starts, a.c.Starts[i])
		c.Starts = append(c.Starts, inner[:e.New-1]...)
		inner = inner[e.New-1:]
		m.take(created, created+e.New)
		created += e.New
		i += int(e.Old)
		if at := c.Starts[len(c.Starts)-1]; at >= startOrEnd(a, i) {
			return &FieldError{"delta slice start", at.String(), "below " + startOrEnd(a, i).String() + ", where its edit ends"}
		}
	}
	for ; i < a.NumSlices(); i++ {
		if err := m.keep(i); err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) renumber() {
	byIndex := make(map[uint32]uint32, len(m.tasks))
	for i := range m.tasks {
		byIndex[m.tasks[i].Index] = uint32(i)
	}
	m.owner = make([]uint32, len(m.base.tasks))
	for i := range m.base.tasks {
		m.owner[i] = gone
		if pos, ok := byIndex[m.base.tasks[i].Index]; ok {
			m.owner[i] = pos
		}
	}
	m.since = make([]uint8, len(m.base.c.SinceTable)+1)
	for i := range m.since {
		g := m.base.h.Horizon
		if i > 0 {
			g = m.base.c.SinceTable[i-1]
		}
		if g <= m.d.H.Horizon {
			continue // 0: not told apart
		}
		m.since[i] = absent
		if j := slices.Index(m.d.Slices.SinceTable, g); j >= 0 && j < maxSinceDistinct {
			m.since[i] = uint8(j + 1)
		}
	}
}

func (m *merger) keep(i int) error {
	r := m.base.Replicas(i)
	for k := r.lo; k < r.hi; k++ {
		o := m.owner[m.base.c.Owners[k]]
		if o == gone {
			return &FieldError{"delta drop", m.base.tasks[m.base.c.Owners[k]].Name, "a task that owns nothing any more"}
		}
		s := m.since[0]
		if m.base.c.Since != nil {
			s = m.since[m.base.c.Since[k]]
		}
		if s == absent {
			return &FieldError{"delta since table", len(m.d.Slices.SinceTable), "every generation that a kept slice needs"}
		}
		m.out.Owners = append(m.out.Owners, o)
		m.out.Since = append(m.out.Since, s)
	}
	m.out.Starts = append(m.out.Starts, m.base.c.Starts[i])
	m.out.Offsets = append(m.out.Offsets, uint32(len(m.out.Owners)))
	return nil
}

func (m *merger) take(from, to uint32) {
	c := &m.d.Slices
	lo, hi := from, to
	if c.Offsets != nil {
		lo, hi = c.Offsets[from], c.Offsets[to]
	}
	at := uint32(len(m.out.Owners))
	m.out.Owners = append(m.out.Owners, c.Owners[lo:hi]...)
	if c.Since == nil {
		m.out.Since = append(m.out.Since, make([]uint8, hi-lo)...)
	} else {
		m.out.Since = append(m.out.Since, c.Since[lo:hi]...)
	}
	for i := from + 1; i <= to; i++ {
		end := i
		if c.Offsets != nil {
			end = c.Offsets[i]
		}
		m.out.Offsets = append(m.out.Offsets, at+end-lo)
	}
}
