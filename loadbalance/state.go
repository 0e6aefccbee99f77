package loadbalance

import (
	"math"

	"github.com/slicer-project/slicer/assignment"
)

// State is what smoothing remembers from round to round: an estimate a slice of
// the assignment that the round decided. It is immutable.
type State struct {
	starts []assignment.SliceKey
	cells  []estimate
	scale  float64 // variance of a measurement per unit of load; see smoother
}

// estimate is what is known of the load of one slice, in load units a second.
type estimate struct {
	level float64
	// gain is the weight of the next measurement, 0 for the configured one. It
	// follows the correlation of successive errors of prediction: errors that
	// keep their sign say that the level lags, errors that change it that the
	// level chases noise.
	gain float64
	last float64 // the last error
	mean float64 // mean square of the errors
	// peak is a maximum that fades, for what must not be hastily undone.
	peak float64
	age  int32 // measurements that level is made of, 0 if it is a guess
}

const (
	// sliceNoise is the relative error that a measurement has at least.
	sliceNoise = .06
	// jump is by how much of itself a load must change, and by how many standard
	// deviations, to be believed at once.
	jump, jumpSigma = .25, 3
	trackWeight     = .2
	learn           = .15 // how fast a gain follows
	// tolerate is the correlation of errors at which a gain stays: a little lag
	// costs less than the moves that chasing noise causes.
	tolerate = .15
	peakKeep        = .98
)

// smoother turns measurements into estimates. The variance of a measurement is
// taken to be (sliceNoise * level)^2 + scale * level: the second term is that of
// counting single requests, and scale is learnt because the unit may be any.
type smoother struct {
	cells []estimate // by slice of Prev
	scale float64
}

// recall finds the estimates of the slices of Prev, whatever the assignment was
// for which they were remembered.
func (b *board) recall() *smoother {
	prev := b.in.Prev
	s := &smoother{cells: make([]estimate, prev.NumSlices())}
	old := b.in.State
	if old == nil || len(old.starts) == 0 {
		return s
	}
	s.scale = old.scale
	starts := prev.Columns().Starts
	k := 0
	for i, at := range starts {
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
			share := both.Fraction() / whole.Fraction()
			s.cells[i].level += old.cells[m].level * share
			s.cells[i].peak += old.cells[m].peak * share
		}
	}
	return s
}

func (s *State) end(i int) assignment.SliceKey {
	if i+1 < len(s.starts) {
		return s.starts[i+1]
	}
	return assignment.KeyspaceEnd
}

// update takes in what was measured; weight is that of a new measurement.
func (s *smoother) update(rate []float64, weight float64) {
	var errs, levels float64
	for i, x := range rate {
		if x != x {
			continue
		}
		c := &s.cells[i]
		if x = sane(x); c.age == 0 {
			*c = estimate{level: x, gain: c.gain, peak: max(x, c.peak*peakKeep), age: 1}
			continue
		}
		err := x - c.level
		noise := s.variance(c.level)
		base := sliceNoise * c.level * sliceNoise * c.level
		limit := 9 * noise
		if s.scale == 0 {
			limit = math.Inf(1)
		}
		errs += max(min(err*err, limit)-base, 0)
		levels += c.level
		c.peak = max(c.peak*peakKeep, x)
		if math.Abs(err) > jump*max(c.level, x) && err*err > jumpSigma*jumpSigma*noise {
			*c = estimate{level: x, gain: c.gain, peak: c.peak, age: 1}
			continue
		}
		c.age = min(c.age+1, 1<<20)
		if c.mean > 0 {
			c.gain += learn * (min(max(err*c.last/c.mean, -1), 1) - tolerate)
		}
		c.gain = min(max(c.gain, weight), 1)
		c.mean += trackWeight * (err*err - c.mean)
		c.last = err
		w := max(c.gain, 1/float64(c.age))
		c.level += w * err
	}
	if levels > 0 {
		now := errs / levels
		if s.scale == 0 {
			s.scale = now
		} else {
			s.scale += .2 * (now - s.scale)
		}
	}
}

func (s *smoother) variance(level float64) float64 {
	return sliceNoise*level*sliceNoise*level + s.scale*level
}

// sliceLoads are the loads of the slices of Prev, as estimated. A slice about
// which nothing is known is taken to be as dense as the known ones.
func (b *board) sliceLoads() []float64 {
	n := b.in.Prev.NumSlices()
	rate := make([]float64, n)
	l := b.in.Loads
	measured := l != nil && len(l.Slice) == n
	if b.cfg.Algorithm == assignment.AlgorithmPublished {
		for i := range rate {
			rate[i] = math.NaN()
			if measured {
				rate[i] = l.Slice[i]
			}
		}
	} else {
		b.smooth = b.recall()
		if measured && b.in.Elapsed > 0 {
			b.smooth.update(l.Slice, b.weightOfNew())
		}
		for i := range rate {
			rate[i] = math.NaN()
			if c := &b.smooth.cells[i]; c.age > 0 || c.level > 0 {
				rate[i] = c.level
			}
		}
	}
	b.fill(rate)
	return rate
}

// peakOf is the recent peak of slice i of Prev.
func (b *board) peakOf(i int, load float64) float64 {
	if b.smooth == nil {
		return load
	}
	return max(load, b.smooth.cells[i].peak)
}

// weightOfNew is the configured weight of a measurement, adjusted to how long
// ago the last one was.
func (b *board) weightOfNew() float64 {
	intervals := float64(b.in.Elapsed) / float64(max(b.cfg.Interval, 1))
	return 1 - math.Pow(1-min(max(b.cfg.Smoothing, 0), 1), min(max(intervals, .01), 100))
}

// fill replaces what is unknown, and sums up.
func (b *board) fill(rate []float64) {
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
	if b.known = b.total > 0; b.known {
		b.fine = newFiner(&b.in, rate)
	}
}

// remember carries the estimates over to the slices on the board.
func (b *board) remember() *State {
	if b.smooth == nil {
		return b.in.State
	}
	s := &State{scale: b.smooth.scale, starts: make([]assignment.SliceKey, 0, b.n), cells: make([]estimate, 0, b.n)}
	prev, k := b.in.Prev, 0
	for i := b.head; i >= 0; i = b.pieces[i].next {
		p := &b.pieces[i]
		for k+1 < prev.NumSlices() && prev.Slice(k).End <= p.start {
			k++
		}
		s.starts = append(s.starts, p.start)
		if prev.Slice(k) == p.slice() {
			s.cells = append(s.cells, b.smooth.cells[k])
			continue
		}
		c := estimate{level: p.load}
		whole := true // it is a union of slices, so it is known as well as they are
		for m := k; m < prev.NumSlices() && prev.Slice(m).Start < p.end; m++ {
			old := b.smooth.cells[m]
			both, _ := prev.Slice(m).Intersect(p.slice())
			if both != prev.Slice(m) {
				whole = false
			}
			share := 1.0
			if both != prev.Slice(m) && old.level > 0 {
				share = b.fine.portion(prev.Slice(m), both.End) - b.fine.portion(prev.Slice(m), both.Start)
			}
			c.peak += old.peak * share
			c.gain = max(c.gain, old.gain)
			if c.age == 0 || old.age < c.age {
				c.age = old.age
			}
		}
		if !whole {
			c.age = 0
		}
		s.cells = append(s.cells, c)
	}
	return s
}
