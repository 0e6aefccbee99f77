package loadbalance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"github.com/slicer-project/slicer/loadbalance"
)

// parted are the parts of a slice, those of a narrow one empty in part.
func parted(s assignment.Slice, n int) []assignment.Slice {
	parts := make([]assignment.Slice, n)
	at := func(p uint64) assignment.SliceKey {
		return s.Start + assignment.SliceKey(s.Width()/uint64(n)*p+s.Width()%uint64(n)*p/uint64(n))
	}
	for p := range parts {
		parts[p] = assignment.Slice{Start: at(uint64(p)), End: at(uint64(p) + 1)}
	}
	return parts
}

// measureByParts is Measure without Find and short cuts: each part of each range is held
// against each part of each slice. Each task reports once, in order of the table.
func measureByParts(a *assignment.Assignment, reports []loadbalance.Report) *loadbalance.Loads {
	parts, n := 1, a.NumSlices()
	for _, r := range reports {
		parts = max(parts, r.Load.Parts)
	}
	newRate, oldRate := make([]float64, n*parts), make([]float64, n*parts)
	newCover, oldCover := make([]float64, n), make([]float64, n)
	newest := make([]assignment.Generation, n)
	visit := func(r *loadbalance.Report, f func(i, p int, rate, cover float64)) {
		l, last := &r.Load, assignment.SliceKey(0)
		for k, s := range l.Ranges {
			if s.Start < last {
				continue
			}
			if last = s.End; !(l.Rate[k] >= 0) {
				continue
			}
			sum := 0.0
			for p := range l.Parts {
				if l.Parts > 1 {
					sum += l.PartRate[k*l.Parts+p]
				}
			}
			for c, cell := range parted(s, l.Parts) {
				rate := l.Rate[k] / float64(l.Parts)
				if sum > 0 {
					rate = l.Rate[k] * l.PartRate[k*l.Parts+c] / sum
				}
				for i := range n {
					for p, to := range parted(a.Slice(i), parts) {
						if both, ok := cell.Intersect(to); ok {
							f(i, p, rate*float64(both.Width())/float64(cell.Width()), float64(both.Width())/float64(a.Slice(i).Width()))
						}
					}
				}
			}
		}
	}
	for j := range reports {
		if g := reports[j].Load.Generation; g < a.Generation() {
			pos, _ := a.Position(reports[j].Task)
			visit(&reports[j], func(i, _ int, _, _ float64) {
				if a.Replicas(i).Has(pos) {
					newest[i] = max(newest[i], g)
				}
			})
		}
	}
	for j := range reports {
		g := reports[j].Load.Generation
		pos, _ := a.Position(reports[j].Task)
		visit(&reports[j], func(i, p int, rate, cover float64) {
			switch owner := a.Replicas(i).Has(pos); {
			case owner && g >= a.Generation():
				newRate[i*parts+p] += rate
				newCover[i] += cover
			case owner || g >= newest[i]:
				oldRate[i*parts+p] += rate
				oldCover[i] += cover
			}
		})
	}
	out := &loadbalance.Loads{Slice: make([]float64, n)}
	if parts > 1 {
		out.Parts, out.Part = parts, make([]float64, n*parts)
	}
	for i := range n {
		rates, factor := newRate, float64(a.Replicas(i).Len())/newCover[i]
		if !(newCover[i] > .5) {
			rates, factor = oldRate, 1/min(oldCover[i], 1)
		}
		if !(newCover[i] > .5) && !(oldCover[i] > .5) {
			out.Slice[i] = math.NaN()
			continue
		}
		sum := 0.0
		for p := i * parts; p < (i+1)*parts; p++ {
			sum += rates[p]
			if parts > 1 {
				out.Part[p] = rates[p] * factor
			}
		}
		out.Slice[i] = sum * factor
	}
	return out
}

// Ranges that are slices as they stand count as if they were taken apart, to the last bit:
// in reports before and after a change, in parts or not, on narrow slices, of owners or not.
func TestMeasureWhole(t *testing.T) {
	same := cmp.Comparer(func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) || x != x && y != y })
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		tasks := rapid.IntRange(1, 5).Draw(t, "tasks")
		starts := []assignment.SliceKey{0}
		for range rapid.IntRange(0, 12).Draw(t, "slices") {
			next := assignment.SliceKey(rng.Uint64() >> (1 + rng.IntN(20)))
			if rng.IntN(3) == 0 { // next to another
				next = starts[rng.IntN(len(starts))] + 1 + assignment.SliceKey(rng.IntN(20))
			}
			starts = append(starts, next)
		}
		slices.Sort(starts)
		starts = slices.Compact(starts)
		var p assignment.Placement
		for _, start := range starts {
			var owners []uint32
			for _, o := range rng.Perm(tasks)[:1+rng.IntN(tasks)] {
				owners = append(owners, uint32(o))
			}
			p.Add(start, owners...)
		}
		a, err := assignment.Successor(nil, assignment.Header{Job: "job", Generation: 10}, fleet(tasks), p)
		if err != nil {
			t.Fatal(err)
		}
		parts := rapid.SampledFrom([]int{1, 3, 8}).Draw(t, "parts")
		odd := rapid.Float64Range(0, 1).Draw(t, "odd")
		var reports []loadbalance.Report
		for k := range tasks {
			l := assignment.Load{Generation: 10, Parts: parts}
			if rng.Float64() < odd {
				l.Generation = assignment.Generation(8 + rng.IntN(4))
			}
			if rng.Float64() < odd/2 {
				l.Parts = []int{1, 2}[rng.IntN(2)]
			}
			for i := 0; i < a.NumSlices(); i++ {
				s := a.Slice(i)
				if rng.Float64() < odd/2 { // it has been cut or merged since
					s.Start += assignment.SliceKey(rng.Uint64N(s.Width()))
					s.End += assignment.SliceKey(rng.Uint64N(uint64(assignment.KeyspaceEnd-s.End)/4 + 1))
				}
				if !a.Replicas(i).Has(k) && rng.Float64() >= odd/2 {
					continue
				}
				rate := rng.ExpFloat64()
				if rng.Float64() < odd/10 {
					rate = math.NaN()
				}
				l.Ranges, l.Rate = append(l.Ranges, s), append(l.Rate, rate)
				for range l.Parts {
					if l.Parts > 1 {
						l.PartRate = append(l.PartRate, max(rng.Float64()-.3, 0))
					}
				}
			}
			reports = append(reports, loadbalance.Report{Task: fmt.Sprint("t", k), Incarnation: 1, Load: l})
		}
		got, want := loadbalance.Measure(a, reports), measureByParts(a, reports)
		if d := cmp.Diff(want.Slice, got.Slice, same); d != "" {
			t.Fatal(d)
		}
		if want.Parts != got.Parts && want.Parts > 1 {
			t.Fatalf("in %d parts, want %d", got.Parts, want.Parts)
		}
		if d := cmp.Diff(want.Part, got.Part, same); d != "" {
			t.Fatal(d)
		}
	})
}
