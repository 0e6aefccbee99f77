package slicelet

import (
	"cmp"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance/overload"
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
	memory     float64 // resident, bytes; 0 if not known
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
		CPU: min(m.cpu/secs/float64(max(m.cores, 1)), 1), Cores: m.cpu / secs, Memory: m.memory,
	}
	which, unit := requests, 1.0
	served := m.n.served()
	all := served
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
	extra, more := m.demand(which, unit, all, served)
	l.Total, l.Unserved = rate(all*unit+more, secs), rate(more, secs)
	if m.metric == assignment.LoadCPU {
		l.Total = rate(m.cpu+more, secs)
	}
	rates := m.ranges(l, which, unit, extra)
	m.heaviest(l, which, unit, rates)
	return l
}

// perSecond is how much CPU time a second's work of a handler takes, 0 if that is not known.
func (m *measurement) perSecond() float64 {
	if t := m.all(spent); t > 0 {
		return min(m.cpu/t, 1)
	}
	return 0
}

// mostDemand is by how much what was refused may count for each that was served: clients say
// what trial requests stand for.
const mostDemand = 9

// demand is the load, by cell and in all, that refused requests would have been: as much as
// those of the cell that were served, or of the task if none were. What was refused in slices that
// have departed meanwhile is the task's no more.
func (m *measurement) demand(which int, unit, all, served float64) (extra []float64, more float64) {
	asked := m.all(refused)
	if asked <= 0 {
		return nil, 0
	}
	counts := min(1, mostDemand*max(served, 1)/asked)
	mean := unit
	if which != requests {
		mean = all * unit / max(served, 1)
	}
	extra = make([]float64, m.lay.cells())
	for c, n := range m.counted[refused] {
		each := mean
		if which != requests && m.counted[which] != nil && m.counted[requests] != nil && m.counted[requests][c] >= 1 {
			each = m.counted[which][c] * unit / m.counted[requests][c]
		}
		extra[c] = n * counts * each
	}
	return extra, amount(extra) + m.lost[refused]*counts*mean
}

// ranges fills in the slices that were watched for long enough, and returns the rates of
// all cells.
func (m *measurement) ranges(l *assignment.Load, which int, unit float64, extra []float64) (rates []float64) {
	parts := m.lay.parts
	var keep []int
	rates = make([]float64, m.lay.cells())
	total := make([]float64, len(m.lay.entries))
	for i := range m.lay.entries {
		known := true
		for c := i * parts; c < (i+1)*parts; c++ {
			if m.bounds(c).Start == m.bounds(c).End {
				continue
			}
			known = known && m.seconds[c] >= leastWatched*m.elapsed.Seconds()
			if m.seconds[c] > 0 {
				n := 0.
				if m.counted[which] != nil {
					n = m.counted[which][c] * unit
				}
				if extra != nil {
					n += extra[c]
				}
				rates[c] = rate(n, m.seconds[c])
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
	return rates
}

func (m *measurement) bounds(cell int) assignment.Slice {
	return m.lay.bounds(cell/m.lay.parts, cell%m.lay.parts)
}

// heaviest fills in the keys that matter by themselves. None has more than its cell.
func (m *measurement) heaviest(l *assignment.Load, which int, unit float64, rates []float64) {
	hot := m.hot[which]
	if which == requests {
		hot = addRefused(hot, m.hot[refused])
	}
	least := hotShare * l.Total * m.elapsed.Seconds() / cmp.Or(unit, 1)
	hot = slices.DeleteFunc(hot, func(h heavy) bool {
		return h.sure() <= 0 || h.sure() < least || m.lay.find(h.key) < 0
	})
	slices.SortFunc(hot, func(a, b heavy) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.key, b.key))
	})
	for _, h := range hot[:min(len(hot), maxHot)] {
		cell := m.lay.cell(m.lay.find(h.key), h.key)
		if secs := m.seconds[cell]; secs >= leastWatched*m.elapsed.Seconds() {
			if f := m.former[which]; f != nil && f[cell] > 0 {
				kept := m.counted[which][cell] / (m.counted[which][cell] + f[cell])
				h.weight, h.over = h.weight*kept, h.over*kept
			}
			of := min(1, rates[cell]/rate(h.weight*unit, secs))
			if base := rate(m.counted[which][cell]*unit, secs); which != requests && base > 0 {
				of = rates[cell] / base // it has refused requests, too
			}
			l.Hot = append(l.Hot, assignment.HotKey{Key: h.key, Rate: rate(h.weight*unit*of, secs), Error: rate(h.over*unit*of, secs)})
		}
	}
}

// heavyKeys are those that ask for more than their part by the limits in force, nil if none does.
func (m *measurement) heavyKeys(l *overload.Limits) *overload.HeavyKeys {
	secs := m.elapsed.Seconds()
	if secs <= 0 || m.n.shed == 0 && m.n.held == 0 {
		return nil
	}
	var keys []overload.KeyRate
	for _, h := range addRefused(m.hot[requests], m.hot[refused]) {
		keys = append(keys, overload.KeyRate{Key: h.key, Rate: h.sure() / secs})
	}
	return l.HeavyKeys((float64(m.n.requests)+m.n.held)/secs, m.n.served()/secs, keys)
}

// addRefused adds what sketches know of refused requests.
func addRefused(hot, more []heavy) []heavy {
	hot = slices.Clone(hot)
	at := make(map[assignment.SliceKey]int, len(hot))
	for i, h := range hot {
		at[h.key] = i
	}
	for _, h := range more {
		if i, ok := at[h.key]; ok {
			hot[i].weight += h.weight
			hot[i].over += h.over
		} else {
			hot = append(hot, h)
		}
	}
	return hot
}

// rate is amount in a second, within what a report may say.
func rate(amount, seconds float64) float64 {
	if r := amount / seconds; r > 0 {
		return min(r, wire.MaxRate)
	}
	return 0
}
