package loadbalance

import (
	"cmp"
	"math"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// maxParts bounds into how many parts of a slice Measure resolves loads.
const maxParts = 64

// Measure maps what tasks reported onto the slices of a, exactly as far as it
// is known: rates of equal ranges are taken as they are, those of ranges and
// parts that straddle a boundary of a are shared out by width.
//
// What the owners of a slice measured under a itself, or a later generation,
// counts first; owners that have not reported yet are taken to carry as much as
// the others. Failing that, older reports count: those of the owners, and of
// tasks that owned the slice in as new a generation. A slice that no report
// covers gets NaN.
//
// Reports of tasks that a does not name, ranges out of order, and rates that are
// NaN, negative or infinite are ignored. Of two reports of one task the one of
// the later incarnation, then generation, counts.
func Measure(a *assignment.Assignment, reports []Report) *Loads {
	m := &meter{a: a, n: a.NumSlices(), parts: 1}
	m.pick(reports)
	for _, r := range m.reports {
		if validParts(r) {
			m.parts = max(m.parts, min(r.Parts, maxParts))
		}
	}
	m.gather()
	return m.loads()
}

func validParts(r *assignment.Load) bool {
	return r.Parts > 1 && len(r.PartRate) == r.Parts*len(r.Rate)
}

// meter gathers reports.
type meter struct {
	a       *assignment.Assignment
	n       int
	parts   int
	reports []*assignment.Load // by position in the task table, nil if there is none

	now    measured                // under the assignment, by the owners
	before measured                // the rest
	newest []assignment.Generation // by slice: of the owners' older reports; nil if there are none
}

// measured is what reports say of the slices, summed over tasks.
type measured struct {
	rate  []float64 // by slice and part; nil while there is nothing
	cover []float64 // by slice: share covered
}

func (s *measured) add(at, slice int, rate, cover float64) {
	s.rate[at] += rate
	s.cover[slice] += cover
}

func (m *meter) pick(reports []Report) {
	at := make([]int, m.a.NumTasks())
	picked := make([]*assignment.Load, m.a.NumTasks())
	for i := range reports {
		r := &reports[i]
		pos, ok := m.a.Position(r.Task)
		if !ok || len(r.Load.Rate) != len(r.Load.Ranges) {
			continue
		}
		if picked[pos] != nil {
			old := &reports[at[pos]]
			if c := cmp.Compare(r.Incarnation, old.Incarnation); c < 0 ||
				c == 0 && r.Load.Generation < old.Load.Generation {
				continue
			}
		}
		picked[pos], at[pos] = &r.Load, i
	}
	m.reports = picked
	for pos, l := range picked {
		if l == nil {
			m.reports[pos] = &assignment.Load{}
		}
	}
}

func (m *meter) gather() {
	m.now = m.none()
	for pos, l := range m.reports {
		if l.Generation >= m.a.Generation() || len(l.Ranges) == 0 {
			continue
		}
		if m.newest == nil {
			m.newest = make([]assignment.Generation, m.n)
		}
		owned := func(i int) {
			if m.a.Replicas(i).Has(pos) {
				m.newest[i] = max(m.newest[i], l.Generation)
			}
		}
		m.visit(l, func(i, _ int) { owned(i) }, func(i, _ int, _, _ float64) { owned(i) })
	}
	for pos, l := range m.reports {
		m.visit(l, func(i, k int) {
			if s := m.counts(i, pos, l); s != nil {
				m.addWhole(s, i, k, l)
			}
		}, func(i, part int, rate, cover float64) {
			if s := m.counts(i, pos, l); s != nil {
				s.add(i*m.parts+part, i, rate, cover)
			}
		})
	}
}

func (m *meter) none() measured {
	room := make([]float64, m.n*(m.parts+1))
	return measured{room[m.n:], room[:m.n]}
}

// counts is what a task's report on slice i counts in, nil if it does not.
func (m *meter) counts(i, pos int, l *assignment.Load) *measured {
	owner := m.a.Replicas(i).Has(pos)
	switch {
	case owner && l.Generation >= m.a.Generation():
		return &m.now
	case !owner && m.newest != nil && l.Generation < m.newest[i]:
		return nil
	case m.before.rate == nil:
		m.before = m.none()
	}
	return &m.before
}

// visit goes through the ranges of a report. It calls whole for each that is a slice of
// a, with its number, and f for each part of each slice of a that another covers, with
// the rate that falls into the part and the share of the slice that it is.
func (m *meter) visit(l *assignment.Load, whole func(slice, k int), f func(slice, part int, rate, cover float64)) {
	parts := 1
	if validParts(l) {
		parts = l.Parts
	}
	var last assignment.SliceKey
	for k, r := range l.Ranges {
		if r.Start >= r.End || r.End > assignment.KeyspaceEnd || r.Start < last {
			continue
		}
		last = r.End
		if !fine(l.Rate[k]) {
			continue
		}
		i := m.a.Find(r.Start)
		if r == m.a.Slice(i) && (parts == m.parts || parts == 1) {
			whole(i, k)
			continue
		}
		sum := sumOfParts(l, k, parts)
		for p := range parts {
			if cell := part(r, p, parts); cell.Start < cell.End {
				m.spread(cell, rateOfPart(l, k, p, parts, sum), f)
			}
		}
	}
}

// sumOfParts is that of the rates of the parts of range k, 0 when there are none.
func sumOfParts(l *assignment.Load, k, parts int) (sum float64) {
	if parts > 1 {
		for _, v := range l.PartRate[k*parts : (k+1)*parts] {
			sum += sane(v)
		}
	}
	return sum
}

// rateOfPart is the rate of part p of range k: parts say how, the range says how much.
func rateOfPart(l *assignment.Load, k, p, parts int, sum float64) float64 {
	if sum > 0 {
		return l.Rate[k] * sane(l.PartRate[k*parts+p]) / sum
	}
	return l.Rate[k] / float64(parts)
}

// addWhole adds range k of a report, which is slice i, as spread would do part by part,
// to the last bit.
func (m *meter) addWhole(to *measured, i, k int, l *assignment.Load) {
	s, rate, width := l.Ranges[k], l.Rate[k], float64(l.Ranges[k].Width())
	rates, cover := to.rate[i*m.parts:(i+1)*m.parts], to.cover[i]
	var known []float64
	sum := 0.0
	if validParts(l) {
		var room [maxParts]float64
		known = room[:len(rates)]
		for p, v := range l.PartRate[k*m.parts:][:len(rates)] {
			known[p] = sane(v)
			sum += known[p]
		}
	}
	even := s.Width()%uint64(m.parts) == 0
	w := float64(s.Width() / uint64(m.parts)) // of a part
	of := w / width
	for p := range rates {
		if !even {
			if w = float64(part(s, p, m.parts).Width()); w == 0 {
				continue
			}
			of = w / width
		}
		switch {
		case sum > 0:
			rates[p] += rate * known[p] / sum * w / w
		case len(rates) == 1 || known != nil:
			rates[p] += rate / float64(m.parts) * w / w
		default:
			rates[p] += rate * w / width
		}
		cover += of
	}
	to.cover[i] = cover
}

// spread shares out the rate of a cell among the parts of slices it lies on.
func (m *meter) spread(cell assignment.Slice, rate float64, f func(slice, part int, rate, cover float64)) {
	for i := m.a.Find(cell.Start); i < m.n; i++ {
		s := m.a.Slice(i)
		both, ok := s.Intersect(cell)
		if !ok {
			return
		}
		if m.parts == 1 {
			f(i, 0, rate*float64(both.Width())/float64(cell.Width()), float64(both.Width())/float64(s.Width()))
			if s.End >= cell.End {
				return
			}
			continue
		}
		for p := partOf(s, both.Start, m.parts); p < m.parts; p++ {
			in, ok := part(s, p, m.parts).Intersect(both)
			if !ok {
				if part(s, p, m.parts).Start >= both.End {
					break
				}
				continue
			}
			f(i, p, rate*float64(in.Width())/float64(cell.Width()), float64(in.Width())/float64(s.Width()))
		}
	}
}

// part is the p-th of n equal parts of a slice, empty if the slice is narrow.
func part(s assignment.Slice, p, n int) assignment.Slice {
	if n == 1 {
		return s
	}
	return assignment.Slice{Start: cut(s, p, n), End: cut(s, p+1, n)}
}

func cut(s assignment.Slice, p, n int) assignment.SliceKey {
	w, q := s.Width(), uint64(n)
	return s.Start + assignment.SliceKey(w/q*uint64(p)+w%q*uint64(p)/q)
}

// partOf is the first part of a slice that may hold a key.
func partOf(s assignment.Slice, k assignment.SliceKey, n int) int {
	p := int(float64(k-s.Start) / float64(s.Width()) * float64(n))
	return min(max(p-1, 0), n-1)
}

// fine says that a rate can be one.
func fine(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }

func (m *meter) loads() *Loads {
	l := &Loads{Slice: make([]float64, m.n), Task: make([]float64, m.a.NumTasks())}
	if m.parts > 1 {
		l.Parts, l.Part = m.parts, m.now.rate // in place
	}
	factor := make([]float64, m.n)
	for i := range m.n {
		out := m.now.rate[i*m.parts : (i+1)*m.parts]
		rates := out
		switch {
		case m.now.cover[i] > .5:
			factor[i] = float64(m.a.Replicas(i).Len()) / m.now.cover[i]
		case m.before.rate != nil && m.before.cover[i] > .5:
			rates = m.before.rate[i*m.parts : (i+1)*m.parts]
			factor[i] = 1 / min(m.before.cover[i], 1)
		default:
			l.Slice[i] = math.NaN()
			clear(out)
			continue
		}
		sum := 0.0
		for p, v := range rates {
			sum += v
			out[p] = min(v*factor[i], maxLoad)
		}
		l.Slice[i] = min(sum*factor[i], maxLoad)
	}
	m.perTask(l)
	m.hot(l, factor)
	return l
}

func (m *meter) perTask(l *Loads) {
	for pos, r := range m.reports {
		for _, v := range r.Rate {
			l.Task[pos] += sane(v)
		}
		set := func(to *[]float64, v, most float64) {
			if !(v > 0) || math.IsInf(v, 1) {
				return
			}
			if *to == nil {
				*to = make([]float64, len(l.Task))
			}
			(*to)[pos] = min(v, most)
		}
		set(&l.CPU, r.CPU, 1)
		set(&l.Shed, r.Shed, math.MaxFloat64)
		set(&l.Unserved, r.Unserved, l.Task[pos])
		set(&l.All, r.Total, maxLoad)
	}
}

// hot sums up what tasks report of the heaviest keys, from the same reports
// that the loads of their slices come from.
func (m *meter) hot(l *Loads, factor []float64) {
	type sums struct{ rate, err float64 }
	by := make(map[assignment.SliceKey]sums)
	for pos, r := range m.reports {
		for _, h := range r.Hot {
			if !fine(h.Rate) || h.Rate == 0 || !fine(h.Error) || h.Key >= assignment.KeyspaceEnd {
				continue
			}
			i := m.a.Find(h.Key)
			owner := m.a.Replicas(i).Has(pos)
			fresh := owner && r.Generation >= m.a.Generation()
			if factor[i] == 0 || fresh != (m.now.cover[i] > .5) || !owner && m.newest != nil && r.Generation < m.newest[i] {
				continue
			}
			s := by[h.Key]
			by[h.Key] = sums{s.rate + sane(h.Rate)*factor[i], s.err + sane(h.Error)*factor[i]}
		}
	}
	for k, s := range by {
		l.Hot = append(l.Hot, assignment.HotKey{Key: k, Rate: s.rate, Error: s.err})
	}
	slices.SortFunc(l.Hot, func(x, y assignment.HotKey) int {
		return cmp.Or(cmp.Compare(y.Rate, x.Rate), cmp.Compare(x.Key, y.Key))
	})
}
