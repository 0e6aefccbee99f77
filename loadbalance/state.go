package loadbalance

import "github.com/slicer-project/slicer/assignment"

// State is what smoothing remembers from round to round. It is immutable.
type State struct {
	starts []assignment.SliceKey
}

// smoother turns measurements into estimates.
type smoother struct{}

// sliceLoads are the loads of the slices of Prev, as estimated. A slice about
// which nothing is known is taken to be as dense as the known ones.
func (b *board) sliceLoads() []float64 {
	n := b.in.Prev.NumSlices()
	rate := make([]float64, n)
	l := b.in.Loads
	if l == nil || len(l.Slice) != n {
		return rate
	}
	sum, width := 0.0, 0.0
	for i, v := range l.Slice {
		if v == v {
			sum += sane(v)
			width += b.in.Prev.Slice(i).Fraction()
		}
	}
	if sum <= 0 {
		return rate
	}
	for i, v := range l.Slice {
		if v == v {
			rate[i] = sane(v)
		} else {
			rate[i] = sum / width * b.in.Prev.Slice(i).Fraction()
		}
		b.total += rate[i]
	}
	b.known = true
	b.fine = newFiner(&b.in, rate)
	return rate
}

func (b *board) remember() *State { return b.in.State }

// weightedMove runs the same phases as published.
func (b *board) weightedMove() { b.published() }
