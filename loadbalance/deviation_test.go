package loadbalance_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// second is what a task reports of a second: requests that come at random to a hundred
// slices, each of which costs what cost says.
func second(rng *rand.Rand, rate float64, cost func() float64) *assignment.Load {
	l := &assignment.Load{}
	for i := range 100 {
		s := assignment.Slice{Start: assignment.SliceKey(i), End: assignment.SliceKey(i + 1)}
		l.Ranges, l.Rate = append(l.Ranges, s), append(l.Rate, 0)
	}
	for at := rng.ExpFloat64(); at < rate; at += rng.ExpFloat64() {
		c := cost()
		l.Rate[rng.IntN(100)] += c
		l.Total += c
	}
	return l
}

// Twenty tasks are at rest for twenty minutes: what they report is never taken for a
// change, whatever requests cost. A key that comes to a task with as much again as it has
// is seen in two reports.
func TestDeviation(t *testing.T) {
	const tasks, rate = 20, 400
	for _, c := range []struct {
		name string
		cost func(rng *rand.Rand) float64
		mean float64
		hot  float64 // by mean loads: a key's that is to be seen
	}{
		{"counted", func(*rand.Rand) float64 { return 1 }, 1, .8},
		{"exponential", (*rand.Rand).ExpFloat64, 1, .8},
		{"Pareto 2.5", func(rng *rand.Rand) float64 { return math.Exp(rng.ExpFloat64() / 2.5) }, 2.5 / 1.5, 1},
		{"Pareto 1.5", func(rng *rand.Rand) float64 { return math.Exp(rng.ExpFloat64() / 1.5) }, 3, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(1) {
				rng := rand.New(rand.NewPCG(seed, 1))
				cost := func() float64 { return c.cost(rng) }
				var d loadbalance.Deviation
				last := make([]*assignment.Load, tasks)
				foretold := rate * c.mean
				single := 0
				for at := range 20 * 60 {
					for k := range tasks {
						l := second(rng, rate, cost)
						d.Learn(l.Total, foretold, tasks)
						if d.Unforeseen(l.Total, foretold, tasks) {
							single++
						}
						if last[k] != nil && d.Unforeseen(loadbalance.Common(l, last[k]), foretold, tasks) {
							t.Errorf("seed %d: a false alarm after %d s", seed, at)
						}
						last[k] = l
					}
				}
				for k := range tasks {
					l := second(rng, rate, cost)
					l.Rate[7] += c.hot * foretold
					last[k].Rate[7] += c.hot * foretold
					if !d.Unforeseen(loadbalance.Common(l, last[k]), foretold, tasks) {
						t.Errorf("seed %d: a key of %.1f mean loads is not seen", seed, c.hot)
					}
				}
				t.Logf("seed %d: %d single reports would have been taken for a change", seed, single)
			}
		})
	}
}

// Nothing is unforeseen before the variance is known, or where nothing was foretold, and
// nonsense teaches nothing.
func TestDeviationUnknown(t *testing.T) {
	var d loadbalance.Deviation
	for range 9 {
		d.Learn(1, 1, 1)
	}
	if d.Unforeseen(100, 1, 1) {
		t.Error("after 9 reports")
	}
	for _, x := range [][2]float64{{math.NaN(), 1}, {1, math.NaN()}, {-1, 1}, {1, 0}, {math.Inf(1), 1}, {1, math.Inf(1)}} {
		d.Learn(x[0], x[1], 1)
	}
	if d.Unforeseen(100, 1, 1) {
		t.Error("nonsense counts")
	}
	d.Learn(1, 1, 1)
	if !d.Unforeseen(100, 1, 1) || d.Unforeseen(1.29, 1, 1) || d.Unforeseen(100, 0, 1) || d.Unforeseen(math.NaN(), 1, 1) || d.Unforeseen(100, 1, 2) {
		t.Error("after 10 reports")
	}
}

func TestCommon(t *testing.T) {
	of := func(ranges []assignment.Slice, rates ...float64) *assignment.Load {
		return &assignment.Load{Ranges: ranges, Rate: rates}
	}
	l := of([]assignment.Slice{span(0, 1), span(1, 2), span(3, 4)}, 5, 2, 7)
	for _, c := range []struct {
		m    *assignment.Load
		want float64
	}{
		{l, 14},
		{of([]assignment.Slice{span(0, 1), span(1, 3), span(3, 4)}, 3, 9, 9), 10},
		{of([]assignment.Slice{span(1, 2)}, math.NaN()), 0},
		{of(nil), 0},
		{of([]assignment.Slice{span(0, 1)}), 0},
	} {
		if got := loadbalance.Common(l, c.m); got != c.want {
			t.Errorf("%v: %g, want %g", c.m, got, c.want)
		}
		if got := loadbalance.Common(c.m, l); got != c.want {
			t.Errorf("%v: %g, want %g", c.m, got, c.want)
		}
	}
}
