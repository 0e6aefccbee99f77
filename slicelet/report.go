package slicelet

import (
	"cmp"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
)

const (
	// A slice that was watched for less than this share of the window is left out
	// of the report: it has come just now, and its load is not known yet.
	leastWatched = .5
	// The heaviest keys that carry at least hotShare of the load for certain are
	// reported, at most maxHot.
	maxHot   = 64
	hotShare = .005
	// maxRanges bounds a report's size; the heaviest slices are kept.
	maxRanges = 1 << 16
)

// measurement is a finished window and what else was counted in it.
type measurement struct {
	window
	elapsed    time.Duration
	generation assignment.Generation
	metric     string
	lost       [metrics]float64
	gone       [metrics]float64 // in slices that have departed meanwhile
	hot        [metrics][]heavy
	n          counts
	cpu        float64 // busy seconds
	cores      int     // that the process may use
}

// all is what was counted of a metric, wherever.
func (m *measurement) all(metric int) float64 {
	return m.lost[metric] + m.gone[metric] + amount(m.counted[metric])
}

// load makes a report of a measurement. CPU is shared out by the time that requests
// took, if any said so.
func (m *measurement) load() *assignment.Load {
	secs := m.elapsed.Seconds()
	if secs <= 0 {
		return nil
	}
	l := &assignment.Load{
		Generation: m.generation, Window: m.elapsed, Parts: m.lay.parts,
		Misrouted: rate(float64(m.n.misrouted), secs), Shed: rate(float64(m.n.shed), secs),
		CPU: min(m.cpu/secs/float64(max(m.cores, 1)), 1),
	}
	which, unit := requests, 1.0
	all := float64(m.n.requests)
	switch m.metric {
	case assignment.LoadCustom:
		which, all = custom, m.all(custom)
	case assignment.LoadCPU:
		if t := m.all(spent); t > 0 {
			which, all = spent, t
		}
		if unit = 0; all > 0 {
			unit = m.cpu / all
		}
	}
	l.Total = rate(all*unit, secs)
	if m.metric == assignment.LoadCPU {
		l.Total = rate(m.cpu, secs)
	}
	m.ranges(l, which, unit)
	m.heaviest(l, which, unit, all)
	return l
}

// ranges fills in the slices that were watched for long enough.
func (m *measurement) ranges(l *assignment.Load, which int, unit float64) {
	parts := m.lay.parts
	var keep []int
	rates := make([]float64, m.lay.cells())
	total := make([]float64, len(m.lay.entries))
	for i := range m.lay.entries {
		known := true
		for c := i * parts; c < (i+1)*parts; c++ {
			if m.bounds(c).Start == m.bounds(c).End {
				continue
			}
			known = known && m.seconds[c] >= leastWatched*m.elapsed.Seconds()
			if m.counted[which] != nil && m.seconds[c] > 0 {
				rates[c] = rate(m.counted[which][c]*unit, m.seconds[c])
				total[i] += rates[c]
			}
		}
		if known {
			keep = append(keep, i)
		}
	}
	if len(keep) > maxRanges {
		slices.SortFunc(keep, func(a, b int) int {
			return cmp.Or(cmp.Compare(total[b], total[a]), cmp.Compare(a, b))
		})
		keep = keep[:maxRanges]
		slices.Sort(keep)
	}
	for _, i := range keep {
		l.Ranges = append(l.Ranges, m.lay.slice(i))
		l.Rate = append(l.Rate, min(total[i], wire.MaxRate))
		if parts > 1 {
			l.PartRate = append(l.PartRate, rates[i*parts:(i+1)*parts]...)
		}
	}
	if amount(l.Rate) == 0 { // parts of nothing say nothing
		l.Parts, l.PartRate = 1, nil
	}
}

func (m *measurement) bounds(cell int) assignment.Slice {
	return m.lay.bounds(cell/m.lay.parts, cell%m.lay.parts)
}

// heaviest fills in the keys that matter by themselves.
func (m *measurement) heaviest(l *assignment.Load, which int, unit, all float64) {
	hot := slices.DeleteFunc(m.hot[which], func(h heavy) bool {
		return h.sure() <= 0 || h.sure() < hotShare*all || m.lay.find(h.key) < 0
	})
	slices.SortFunc(hot, func(a, b heavy) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.key, b.key))
	})
	for _, h := range hot[:min(len(hot), maxHot)] {
		cell := m.lay.cell(m.lay.find(h.key), h.key)
		if secs := m.seconds[cell]; secs >= leastWatched*m.elapsed.Seconds() {
			l.Hot = append(l.Hot, assignment.HotKey{Key: h.key, Rate: rate(h.weight*unit, secs), Error: rate(h.over*unit, secs)})
		}
	}
}

// rate is amount in a second, within what a report may say.
func rate(amount, seconds float64) float64 {
	if r := amount / seconds; r > 0 {
		return min(r, wire.MaxRate)
	}
	return 0
}
