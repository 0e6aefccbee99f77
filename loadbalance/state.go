package loadbalance

import (
	"math"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// State is what smoothing remembers from round to round: an estimate a slice of
// the assignment that the round decided. It is immutable.
type State struct {
	starts    []assignment.SliceKey
	cells     []estimate
	trust     trust
	abilities []ability
	still     time.Duration // since slices or owners changed
	carries   []carries
}

func (s *State) end(i int) assignment.SliceKey {
	if i+1 < len(s.starts) {
		return s.starts[i+1]
	}
	return assignment.KeyspaceEnd
}

// sliceLoads are the loads of the slices of Prev, as estimated. A slice about
// which nothing is known is taken to be as dense as the known ones.
func (b *placement) sliceLoads() []float64 {
	n := b.in.Prev.NumSlices()
	rate := make([]float64, n)
	l := b.in.Loads
	measured := l != nil && len(l.Slice) == n
	if b.in.Published {
		for i := range rate {
			rate[i] = math.NaN()
			if measured {
				rate[i] = l.Slice[i]
			}
		}
	} else {
		b.smooth = b.recall()
		if measured && (b.in.Elapsed > 0 && !b.in.MembershipOnly || b.smooth.trust.rounds == 0) {
			t := &b.smooth.trust
			t.count = countNoise(&b.in)
			t.pace = min(float64(b.in.Elapsed)/float64(memory), 1)
			t.tempo = math.Sqrt(min(float64(b.in.Elapsed)/float64(unhurried), 1))
			t.afterBrief, t.brief = t.brief, b.in.Elapsed > 0 && b.in.Elapsed < b.in.Config.Balance.Interval*3/4
			if b.in.Elapsed <= 0 {
				t.pace, t.tempo = 1, 1
			}
			b.smooth.update(l.Slice, widths(&b.in), weightOfNew(&b.in), .25/float64(len(b.live)))
		}
		sum := 0.0
		for i := range b.smooth.cells {
			sum += b.smooth.cells[i].level
		}
		for i := range rate {
			rate[i] = math.NaN()
			if c := &b.smooth.cells[i]; c.age > 0 || c.level > 0 {
				rate[i] = b.smooth.trust.regress(c.level, sum*b.in.Prev.Slice(i).Fraction(), .25*sum/float64(len(b.live)))
			}
		}
	}
	b.fill(rate)
	return rate
}

// weightOfNew is the configured weight of a measurement, adjusted to how long
// ago the last one was.
func weightOfNew(in *Input) float64 {
	if in.Elapsed <= 0 {
		return 1
	}
	intervals := float64(in.Elapsed) / float64(max(in.Config.Balance.Interval, 1))
	return 1 - math.Pow(1-min(max(in.Config.Balance.Smoothing, 0), 1), min(max(intervals, .01), 100))
}

// countNoise is the variance of a measured rate of 1 a second when all that is
// measured is how many requests came.
func countNoise(in *Input) float64 {
	window := in.Elapsed
	if in.Loads != nil && in.Loads.Window > 0 {
		window = in.Loads.Window
	}
	if in.Config.LoadMetric != assignment.LoadRequests || window <= 0 {
		return 0
	}
	return 1 / window.Seconds()
}

func widths(in *Input) []float64 {
	w := make([]float64, in.Prev.NumSlices())
	for i := range w {
		w[i] = in.Prev.Slice(i).Fraction()
	}
	return w
}

// fill replaces what is unknown, and sums up.
func (b *placement) fill(rate []float64) {
	sum, width := 0.0, 0.0
	for i, v := range rate {
		if v == v {
			rate[i] = sane(v)
			sum += rate[i]
			width += b.in.Prev.Slice(i).Fraction()
		}
	}
	for i, v := range rate {
		if v != v {
			rate[i] = 0
			if sum > 0 {
				rate[i] = sum / width * b.in.Prev.Slice(i).Fraction()
			}
		}
		b.total += rate[i]
	}
	if b.total > 0 {
		b.fine = newSubSliceLoad(&b.in, rate)
	}
}

// recall finds the estimates of the slices of Prev, whatever the assignment was
// for which they were remembered.
func (b *placement) recall() *smoother {
	prev := b.in.Prev
	s := &smoother{cells: growable(b.work.cells, prev.NumSlices(), b.room())}
	clear(s.cells)
	old := b.in.State
	if old == nil || len(old.starts) == 0 {
		return s
	}
	s.trust = old.trust
	k := 0
	for i, at := range prev.Columns().Starts {
		end := prev.Slice(i).End
		for k+1 < len(old.starts) && old.starts[k+1] <= at {
			k++
		}
		if old.starts[k] == at && old.end(k) == end {
			s.cells[i] = old.cells[k]
			continue
		}
		for m := k; m < len(old.starts) && old.starts[m] < end; m++ {
			whole := assignment.Slice{Start: old.starts[m], End: old.end(m)}
			both, _ := whole.Intersect(prev.Slice(i))
			s.cells[i] = s.cells[i].plus(old.cells[m].part(both.Fraction()/whole.Fraction(), 0))
		}
	}
	return s
}
