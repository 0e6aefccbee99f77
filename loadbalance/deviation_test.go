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

// In the first twelve seconds a job at rest seems no less so, however few requests it has and
// whatever they cost, and a key of one and a half mean loads is seen in the first two reports.
func TestDeviationAtFirst(t *testing.T) {
	const tasks = 20
	for _, rate := range []float64{5, 20, 150} {
		for _, tail := range []float64{math.Inf(1), 2.5, 1.5} { // of a Pareto distribution
			for seed := range uint64(20) {
				rng := rand.New(rand.NewPCG(seed, 2))
				mean := 1 / (1 - 1/tail)
				var d loadbalance.Deviation
				last := make([]*assignment.Load, tasks)
				for at := range 12 {
					for k := range tasks {
						l := second(rng, rate, func() float64 { return math.Exp(rng.ExpFloat64() / tail) })
						d.Learn(l.Total, rate*mean, tasks)
						if last[k] != nil && d.Unforeseen(loadbalance.Common(l, last[k]), rate*mean, tasks) {
							t.Errorf("%g requests/s, tail %g, seed %d: a false alarm after %d s", rate, tail, seed, at)
						}
						last[k] = l
					}
				}
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var d loadbalance.Deviation
	var both [2]*assignment.Load
	for i := range both {
		both[i] = second(rng, 150, func() float64 { return 1 })
		both[i].Rate[7] += 1.5 * 150
		d.Learn(both[i].Total+1.5*150, 150, tasks)
		for range tasks - 1 {
			d.Learn(second(rng, 150, func() float64 { return 1 }).Total, 150, tasks)
		}
	}
	if !d.Unforeseen(loadbalance.Common(both[0], both[1]), 150, tasks) {
		t.Error("a key of one and a half mean loads is not seen in the first two reports")
	}
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

// Until the variance is known a load must be well above what was foretold, nothing is
// unforeseen where nothing was foretold, and nonsense teaches nothing.
func TestDeviationUnknown(t *testing.T) {
	var d loadbalance.Deviation
	check := func(when string, tasks int, most float64) {
		t.Helper()
		if d.Unforeseen(most-.01, 1, tasks) || !d.Unforeseen(most+.01, 1, tasks) {
			t.Errorf("%s: %t at %.2f, %t at %.2f, want false and true", when, d.Unforeseen(most-.01, 1, tasks), most-.01, d.Unforeseen(most+.01, 1, tasks), most+.01)
		}
	}
	check("at first", 1, 2)
	for _, x := range [][2]float64{{math.NaN(), 1}, {1, math.NaN()}, {-1, 1}, {1, 0}, {math.Inf(1), 1}, {1, math.Inf(1)}} {
		d.Learn(x[0], x[1], 1)
	}
	check("after nonsense", 1, 2)
	for range 5 {
		d.Learn(1, 1, 1)
	}
	check("after 5 reports", 1, 1.71)
	for range 5 {
		d.Learn(1, 1, 1)
	}
	check("after 10 reports", 1, 1.3)
	check("after 10 reports of two tasks", 2, 1.71)
	if d.Unforeseen(100, 0, 1) || d.Unforeseen(math.NaN(), 1, 1) {
		t.Error("nothing was foretold, or nothing measured")
	}
	for range 2 {
		d.Learn(2, 1, 1)
	}
	check("where 2 of 12 were off by 1", 1, 1+4*math.Sqrt(2./12))
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
