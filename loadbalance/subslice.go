package loadbalance

import "github.com/slicer-project/slicer/assignment"

// subSliceLoad knows how the load of the slices of Prev lies within them. A nil subSliceLoad
// knows nothing and takes it to be even.
type subSliceLoad struct {
	prev  *assignment.Assignment
	rate  []float64 // by slice, nothing unknown
	parts int
	part  []float64 // slice after slice, nil when parts is 1
}

func newSubSliceLoad(in *Input, rate []float64) *subSliceLoad {
	f := &subSliceLoad{prev: in.Prev, rate: rate, parts: 1}
	if l := in.Loads; l != nil && l.Parts > 1 && len(l.Part) == l.Parts*in.Prev.NumSlices() {
		f.parts, f.part = l.Parts, l.Part
	}
	return f
}

// portion is the share of a slice's load that lies below key at, 0 to 1.
func (f *subSliceLoad) portion(s assignment.Slice, at assignment.SliceKey) float64 {
	if at <= s.Start {
		return 0
	}
	if at >= s.End {
		return 1
	}
	left := assignment.Slice{Start: s.Start, End: at}
	if f != nil {
		if all := f.within(s); all > 0 {
			return min(f.within(left)/all, 1)
		}
	}
	return left.Fraction() / s.Fraction()
}

// within is the load between two keys.
func (f *subSliceLoad) within(s assignment.Slice) float64 {
	sum := 0.0
	for i := f.prev.Find(s.Start); i < f.prev.NumSlices(); i++ {
		old := f.prev.Slice(i)
		both, ok := old.Intersect(s)
		if !ok {
			break
		}
		if both == old {
			sum += f.rate[i]
			continue
		}
		sum += f.rate[i] * (f.below(i, old, both.End) - f.below(i, old, both.Start))
	}
	return sum
}

// below is the share of slice i of Prev that lies below key at, by its parts.
func (f *subSliceLoad) below(i int, s assignment.Slice, at assignment.SliceKey) float64 {
	x := float64(at-s.Start) / float64(s.End-s.Start)
	if f.part == nil {
		return x
	}
	parts := f.part[i*f.parts : (i+1)*f.parts]
	all, under := 0.0, 0.0
	for k, v := range parts {
		v = sane(v)
		all += v
		under += v * min(max(x*float64(f.parts)-float64(k), 0), 1)
	}
	if all <= 0 {
		return x
	}
	return under / all
}
