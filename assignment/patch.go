package assignment

import (
	"math"
	"math/bits"
	"sort"
	"sync"
	"sync/atomic"
)

// patch is what deltas have made of an assignment in columns: slices that take the place of some of
// its own. It takes time and memory by these alone, where columns take them by all slices, and is
// what a clerk has of a job with many slices after most deltas. Lookups go by it; what needs all
// slices makes columns of it, once.
type patch struct {
	base  *Assignment // in columns
	edits []Edit      // of its slices; slices of base are between any two
	// kept are base's columns under the header and with the tasks of the patched assignment, which
	// has no task at another position. own are the new slices, in order: a slice ends not where the
	// next begins but at its place in ends.
	kept, own Assignment
	ends      []SliceKey
	touched   []uint64 // a bit for each range of 2^shift keys, set if an edit has some of them
	shift     uint8    // of a key, to find its bit
	slices    int      // of the patched assignment
	owners    int
	once      sync.Once
	whole     atomic.Pointer[Assignment] // in columns; nil: nothing has needed it
}

// maxPatch is how many slices a patch has at most, of a base of n. To make one of another and a
// delta takes time by its slices, and to make columns of it by all, but once it is full only: the sum
// is least at a multiple of the root, and hardly more at half or twice that. The factor is measured,
// with deltas of 100. Of few slices columns take less time than they are worth thinking about.
func maxPatch(n int) int {
	if n < PartFrom {
		return 0
	}
	return int(8 * math.Sqrt(float64(n)))
}

// inColumns is a in columns: a itself unless it is a patch.
func (a *Assignment) inColumns() *Assignment {
	p := a.patch
	if p == nil {
		return a
	}
	p.once.Do(func() { p.whole.Store(p.flatten(a)) })
	return p.whole.Load()
}

// flatten makes the columns.
func (p *patch) flatten(a *Assignment) *Assignment {
	d := &Delta{H: a.h, Base: p.base.h.Generation, Edits: p.edits, Slices: p.own.c}
	d.Slices.Starts = make([]SliceKey, 0, len(p.own.c.Starts)-len(p.edits))
	i := 0
	for _, e := range p.edits { // a delta does not say where the first of an edit begins
		d.Slices.Starts = append(d.Slices.Starts, p.own.c.Starts[i+1:i+int(e.New)]...)
		i += int(e.New)
	}
	m := merger{base: p.base, d: d, tasks: a.tasks, names: a.names}
	whole, err := m.merge()
	if err != nil {
		panic("assignment: a patch that was made is not valid: " + err.Error())
	}
	whole.counts = a.counts
	return whole
}

// lookup returns the assignment in columns that has the slice that holds the key, and the positions
// of its owners there.
func (p *patch) lookup(k SliceKey) (a *Assignment, lo, hi uint32) {
	k = min(k, KeyspaceEnd-1)
	l := k >> (p.shift & 63)
	if p.touched[l>>6]>>(l&63)&1 != 0 {
		if i := p.find(k); i >= 0 {
			lo, hi = p.own.c.owners(i, i+1)
			return &p.own, lo, hi
		}
	}
	_, lo, hi = p.kept.locate(k)
	return &p.kept, lo, hi
}

// find returns the number of the new slice that holds the key, -1 if none does.
func (p *patch) find(k SliceKey) int {
	starts := p.own.c.Starts
	i := sort.Search(len(starts), func(i int) bool { return starts[i] > k }) - 1
	if i >= 0 && k >= p.ends[i] {
		return -1
	}
	return i
}

// patcher makes a patch of an assignment and a delta on it, going once through what both change.
type patcher struct {
	was *patch // without edits if the assignment is in columns
	p   *patch
	// The last of p's edits goes on if open, and otherwise kept slices of base follow it.
	open bool
	kept int
	// Gone through: i slices of base, e edits of was and j of its slices. run slices of base come
	// before the next edit of was, or left of was's slices, which are the last edit's.
	i, e, j   int
	run, left int

	in, ofBase sinceNumbers // of was's generations in the delta's table, and of base's in was's
	rest       content      // of what stays, by was's table
	more       *content     // of what is new, by the delta's
}

// patched returns the assignment that the delta makes of base as a patch, nil if it is to be in
// columns: if more slices change than a patch is to have, tasks change places, or the horizon goes
// back.
func (m *merger) patched(most func(slices int) int) (*Assignment, error) {
	prev, created := m.base, 0
	for _, e := range m.d.Edits {
		created += int(e.New)
	}
	was := prev.patch
	if was == nil || was.whole.Load() != nil || created+len(was.ends) > most(was.base.NumSlices()) {
		if created > most(prev.NumSlices()) {
			return nil, nil
		}
		prev = prev.inColumns()
		was = &patch{base: prev, own: Assignment{c: Columns{SinceTable: prev.c.SinceTable}}, slices: prev.NumSlices(), owners: prev.NumOwners()}
	}
	if m.d.H.Horizon < prev.h.Horizon || !prev.samePositions(m.tasks) {
		return nil, nil
	}
	x, base, table := prev.content(), was.base, m.d.Slices.SinceTable
	w := patcher{
		was: was, p: was.extend(m, created),
		in:     numbersIn(prev.h.Horizon, was.own.c.SinceTable, m.d.H.Horizon, table),
		ofBase: numbersIn(base.h.Horizon, base.c.SinceTable, prev.h.Horizon, was.own.c.SinceTable),
		rest:   x.clone(), more: x.onTable(table),
	}
	if !sameTable(m.tasks, prev.tasks) {
		w.more.take(m.tasks)
	}
	var err error
	if len(was.edits) > 0 {
		err = w.onPatch(m.d)
	} else {
		err = w.onColumns(m.d)
	}
	if err != nil {
		return nil, err
	}
	w.p.owners += len(m.d.Slices.Owners)
	if !w.more.plus(&w.rest, &w.in) {
		return nil, &FieldError{"delta since table", len(table), "every generation that a kept slice needs"}
	}
	if err := validateSizes(w.p.slices, w.p.owners); err != nil {
		return nil, err
	}
	a := &Assignment{h: m.d.H, tasks: m.tasks, names: m.names, patch: w.p, counts: new(counts)}
	a.counts.Store(w.more)
	return a, nil
}

// extend is a patch on the same base that has no slices yet, and room for p's and for others.
func (p *patch) extend(m *merger, created int) *patch {
	n, base := created+len(p.ends), p.base
	keys := make([]SliceKey, 2*n)
	q := &patch{
		base: base, kept: Assignment{h: m.d.H, tasks: m.tasks, c: base.c, lines: base.lines, shift: base.shift},
		own:  Assignment{h: m.d.H, tasks: m.tasks, c: Columns{Starts: keys[:0:n], SinceTable: m.d.Slices.SinceTable}},
		ends: keys[n:n], slices: p.slices, owners: p.owners,
	}
	// One in touchedPerSlice lookups of keys without an edit looks for one in vain.
	q.shift = max(base.shift, uint8(KeyBits-bits.Len(uint(n*touchedPerSlice))))
	q.touched = make([]uint64, (1<<(KeyBits-q.shift)+63)/64)
	if q.shift == p.shift {
		copy(q.touched, p.touched)
	} else {
		for i, end := range p.ends {
			q.touch(p.own.c.Starts[i], end)
		}
	}
	return q
}

// touchedPerSlice is how many bits a patch has in touched for each of its slices, at least.
const touchedPerSlice = 64

// onColumns takes the edits of a delta where there are none yet. Its columns become the patch's, but
// for starts.
func (w *patcher) onColumns(d *Delta) error {
	p, base, i, inner := w.p, w.was.base, 0, d.Slices.Starts
	starts, ends := p.own.c.Starts, p.ends
	for _, e := range d.Edits {
		i += int(e.Keep)
		start := base.c.Starts[i]
		w.dropFrom(base, i, int(e.Old), &w.ofBase)
		i += int(e.Old)
		p.slices += int(e.New) - int(e.Old)
		starts = append(starts, start)
		for _, s := range inner[:e.New-1] {
			starts, ends = append(starts, s), append(ends, s)
		}
		inner = inner[e.New-1:]
		end := startOrEnd(base, i)
		ends = append(ends, end)
		p.touch(start, end)
	}
	p.edits, p.ends = d.Edits, ends
	p.own.c = Columns{starts, d.Slices.Offsets, d.Slices.Owners, d.Slices.Since, d.Slices.SinceTable}
	return w.count(0)
}

// onPatch takes the edits of a delta on a patch.
func (w *patcher) onPatch(d *Delta) error {
	p, c, created, inner, n := w.p, &w.p.own.c, 0, d.Slices.Starts, w.p.slices
	p.edits = make([]Edit, 0, len(w.was.edits)+len(d.Edits))
	c.Offsets, c.Owners, c.Since = make([]uint32, 1, cap(c.Starts)+1), make([]uint32, 0, cap(c.Starts)), make([]uint8, 0, cap(c.Starts))
	w.run = w.toNext()
	for _, e := range d.Edits {
		w.keep(int(e.Keep))
		first, start := len(c.Starts), w.at()
		w.drop(int(e.Old))
		end := w.at()
		c.Starts = append(append(c.Starts, start), inner[:e.New-1]...)
		p.ends = append(append(p.ends, inner[:e.New-1]...), end)
		c.addSlices(&d.Slices, created, created+int(e.New))
		w.edit().New += e.New
		inner, created, n = inner[e.New-1:], created+int(e.New), n-int(e.Keep+e.Old)
		if err := w.count(first); err != nil {
			return err
		}
		p.slices += int(e.New)
		p.touch(start, end)
	}
	w.keep(n)
	return nil
}

// count takes the patch's slices from first on to what is counted. Each start is validated alone: an
// edit begins and ends with slices that were there, and where one of its slices ends the next begins.
func (w *patcher) count(first int) error {
	p := w.p
	for i := first; i < len(p.ends); i++ {
		if start, end := p.own.c.Starts[i], p.ends[i]; start >= end {
			return &FieldError{"delta slice start", start.String(), "below " + end.String() + ", where it ends"}
		}
	}
	w.more.count(1, &p.own.c, first, len(p.ends), nil)
	return nil
}

// touch notes that keys from start to below end are an edit's.
func (p *patch) touch(start, end SliceKey) {
	for l := start >> p.shift; l <= (end-1)>>p.shift; l++ {
		p.touched[l/64] |= 1 << (l % 64)
	}
}

// toNext is how many slices of base come before the next edit of was.
func (w *patcher) toNext() int {
	if w.e < len(w.was.edits) {
		return int(w.was.edits[w.e].Keep)
	}
	return len(w.was.base.c.Starts) - w.i
}

// begin begins was's next edit if that is what comes next.
func (w *patcher) begin() {
	if w.run > 0 || w.left > 0 || w.e == len(w.was.edits) {
		return
	}
	e := w.was.edits[w.e]
	w.e, w.i, w.left = w.e+1, w.i+int(e.Old), int(e.New)
	w.run = w.toNext()
	w.edit().Old += e.Old
}

// at is where the next slice begins.
func (w *patcher) at() SliceKey {
	if w.left > 0 {
		return w.was.own.c.Starts[w.j]
	}
	return startOrEnd(w.was.base, w.i)
}

// edit is the one of p that goes on, or begins, at the next slice.
func (w *patcher) edit() *Edit {
	p := w.p
	if !w.open {
		p.edits, w.kept, w.open = append(p.edits, Edit{Keep: uint32(w.kept)}), 0, true
	}
	return &p.edits[len(p.edits)-1]
}

// keep goes through n slices that stay.
func (w *patcher) keep(n int) {
	if m := min(n, w.left); m > 0 { // of an edit of was that has begun
		w.left, n = w.left-m, n-m
		w.keepOwn(m)
		w.edit().New += uint32(m)
	}
	edits, own := w.was.edits, 0
	for w.e < len(edits) && w.run+int(edits[w.e].New) <= n { // edits that stay as they are
		e := edits[w.e]
		n, own = n-w.run-int(e.New), own+int(e.New)
		w.keepBase(w.run)
		x := w.edit()
		x.Old, x.New = x.Old+e.Old, x.New+e.New
		w.i, w.e = w.i+int(e.Old), w.e+1
		w.run = w.toNext()
	}
	w.keepOwn(own)
	m := min(n, w.run)
	w.keepBase(m)
	if n -= m; n > 0 { // the beginning of an edit
		w.begin()
		w.left -= n
		w.keepOwn(n)
		w.edit().New += uint32(n)
	}
}

func (w *patcher) keepBase(n int) {
	if n > 0 {
		w.i, w.run, w.kept, w.open = w.i+n, w.run-n, w.kept+n, false
	}
}

// keepOwn takes slices of was.
func (w *patcher) keepOwn(n int) {
	if n == 0 {
		return
	}
	c, from, end := &w.p.own.c, &w.was.own.c, w.j+n
	at := len(c.Since)
	c.Starts = append(c.Starts, from.Starts[w.j:end]...)
	w.p.ends = append(w.p.ends, w.was.ends[w.j:end]...)
	c.addSlices(from, w.j, end)
	for i, number := range c.Since[at:] {
		c.Since[at+i] = w.in[number]
	}
	w.j = end
}

// drop goes through n slices that make way.
func (w *patcher) drop(n int) {
	w.p.slices -= n
	for n > 0 {
		w.begin()
		if m := min(n, w.left); m > 0 {
			w.dropFrom(&w.was.own, w.j, m, nil)
			w.j, w.left, n = w.j+m, w.left-m, n-m
			continue
		}
		m := min(n, w.run)
		w.dropFrom(w.was.base, w.i, m, &w.ofBase)
		w.edit().Old += uint32(m)
		w.i, w.run, n = w.i+m, w.run-m, n-m
	}
}

// dropFrom takes n slices of a, from the i-th on, away from what is counted.
func (w *patcher) dropFrom(a *Assignment, i, n int, in *sinceNumbers) {
	lo, hi := a.c.owners(i, i+n)
	w.p.owners -= int(hi - lo)
	w.rest.count(-1, &a.c, i, i+n, in)
}

// samePositions reports whether each of a's tasks has the same position in another table.
func (a *Assignment) samePositions(tasks []Task) bool {
	if sameTable(tasks, a.tasks) {
		return true
	}
	if len(tasks) < len(a.tasks) {
		return false
	}
	for i := range a.tasks {
		if tasks[i].Index != a.tasks[i].Index {
			return false
		}
	}
	return true
}

// sameTable reports whether two tables of tasks are one.
func sameTable(a, b []Task) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
