package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// Noise is how far off measurements are.
type Noise struct {
	// Slice and Task are standard deviations of the relative error of each
	// slice's load and of each task's as a whole.
	Slice, Task float64
	// Poisson says that the loads of a window are means, and what is counted is
	// drawn. The loads of a recorded trace are counts already.
	Poisson bool
	// Cost is the exponent of the Pareto distribution that the costs of requests have,
	// with a mean of 1: above 1, the less the heavier their tail. Loads are costs then;
	// 0 if all cost the same. It goes with Poisson only.
	Cost float64
}

// DefaultNoise is what metering is assumed to have.
var DefaultNoise = Noise{Slice: .05, Task: .02}

// meter measures a window as the tasks of a job would.
type meter struct {
	noise   Noise
	rng     *rand.Rand
	parts   int
	seconds float64 // of a window
	cells   []assignment.SliceKey
	cell    []float64
}

// measure returns the loads by slice of a.
func (m *meter) measure(v *windowLoads, a *assignment.Assignment) *loadbalance.Loads {
	starts := a.Columns().Starts
	l := &loadbalance.Loads{Slice: make([]float64, len(starts)), Task: make([]float64, a.NumTasks())}
	cells := starts
	if m.parts > 1 {
		l.Parts, l.Part = m.parts, make([]float64, len(starts)*m.parts)
		cells = m.cut(a)
	}
	m.cell = v.sliceLoads(cells, m.cell)
	parts := len(m.cell) / len(starts)
	off := make([]float64, a.NumTasks())
	carries := v.carries(a)
	for t := range off {
		off[t] = m.error(m.noise.Task)
		if carries != nil {
			off[t] *= carries[t].share
			l.CPU = append(l.CPU, min(carries[t].demand*carries[t].share*m.error(m.noise.Task), 1))
		}
	}
	for i := range starts {
		r := a.Replicas(i)
		for j := range r.Len() {
			t := r.Position(j)
			e := off[t] * m.error(m.noise.Slice) / m.seconds
			for k := range parts {
				x := m.count(m.cell[i*parts+k]/float64(r.Len())) * e
				if l.Part != nil {
					l.Part[i*parts+k] += x
				}
				l.Slice[i] += x
				l.Task[t] += x
			}
		}
	}
	l.Hot = m.hot(v, a, carries)
	return l
}

// cut lists the starts of the parts of all slices. Parts of a slice narrower
// than their number are empty, all but the last.
func (m *meter) cut(a *assignment.Assignment) []assignment.SliceKey {
	m.cells = m.cells[:0]
	for i := range a.NumSlices() {
		s := a.Slice(i)
		for k := range uint64(m.parts) {
			m.cells = append(m.cells, s.Start+assignment.SliceKey(s.Width()/uint64(m.parts)*k))
		}
	}
	return m.cells
}

// hot finds the keys that a sketch would: those above a fiftieth of the mean task.
func (m *meter) hot(v *windowLoads, a *assignment.Assignment, carries []carried) []assignment.HotKey {
	var hot []assignment.HotKey
	least := v.total / float64(a.NumTasks()) / 50
	for i, x := range v.w.Load {
		if x <= least {
			continue
		}
		rate := m.count(x) * m.error(m.noise.Slice) / m.seconds
		if carries != nil {
			r, sum := a.Lookup(v.w.Keys[i]), 0.0
			for j := range r.Len() {
				sum += carries[r.Position(j)].share
			}
			rate *= sum / float64(r.Len())
		}
		hot = append(hot, assignment.HotKey{Key: v.w.Keys[i], Rate: rate})
	}
	slices.SortFunc(hot, func(a, b assignment.HotKey) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Key, b.Key))
	})
	return hot
}

func (m *meter) error(sd float64) float64 {
	if sd <= 0 {
		return 1
	}
	return max(1+sd*m.rng.NormFloat64(), 0)
}

// count draws what the requests cost that came when mean were to be expected.
func (m *meter) count(mean float64) float64 {
	n := m.poisson(mean)
	if m.noise.Cost <= 1 || !m.noise.Poisson {
		return n
	}
	sum := 0.0
	for range int(n) {
		sum += math.Pow(1-m.rng.Float64(), -1/m.noise.Cost)
	}
	return sum * (m.noise.Cost - 1) / m.noise.Cost
}

// poisson draws how many requests came.
func (m *meter) poisson(mean float64) float64 {
	switch {
	case !m.noise.Poisson || mean <= 0:
		return mean
	case mean > 30:
		return max(math.Round(mean+math.Sqrt(mean)*m.rng.NormFloat64()), 0)
	}
	n, p, limit := 0.0, m.rng.Float64(), math.Exp(-mean)
	for p > limit {
		n++
		p *= m.rng.Float64()
	}
	return n
}
