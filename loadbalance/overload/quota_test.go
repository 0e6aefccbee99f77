package overload_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// Who shares a limit gets all of it together, and what it asks for where that fits and may come to ask
// for.
func TestDivide(t *testing.T) {
	t.Parallel()
	amount := rapid.OneOf(rapid.Float64Range(1e-3, 100), rapid.Just(0.)) // less is what rounding leaves
	rapid.Check(t, func(t *rapid.T) {
		limit := amount.Draw(t, "limit")
		claims := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) overload.Claim {
			return overload.Claim{Asked: amount.Draw(t, "asked"), Capacity: rapid.Float64Range(.1, 10).Draw(t, "capacity")}
		}), 1, 8).Draw(t, "claims")
		var all overload.Claim
		for _, c := range claims {
			all.Add(overload.Claim{Asked: 7, Capacity: 1})
			all.Add(c)
			all.Subtract(overload.Claim{Asked: 7, Capacity: 1})
		}
		sum := 0.
		for _, c := range claims {
			share, want := overload.Divide(limit, all, c), c.Asked
			switch {
			case all.Asked > limit:
				want *= .9 * limit / all.Asked
			case all.Asked > 0: // and nearly as much more as all the others
				want *= 1 + .9*(limit-all.Asked)/all.Asked
			}
			if sum += share; !(share >= want*(1-1e-9)-1e-9) {
				t.Errorf("%v of %g: %v gets %g, less than %g", claims, limit, c, share, want)
			}
		}
		if math.Abs(sum-limit) > 1e-9*(1+limit+all.Asked) {
			t.Errorf("%v of %g: the shares add up to %g", claims, limit, sum)
		}
	})
	for _, hostile := range []float64{math.NaN(), -1, math.Inf(-1)} {
		bad := overload.Claim{Asked: hostile, Capacity: hostile}
		all := overload.Claim{Asked: 5, Capacity: 1}
		all.Add(bad)
		if got := overload.Divide(10, all, bad); got != 0 {
			t.Errorf("a claim of %g gets %g", hostile, got)
		}
		if got := overload.Divide(hostile, all, all); got != 0 {
			t.Errorf("of a limit of %g one gets %g", hostile, got)
		}
	}
}

// A customer that asks for ten times its rate gets the rate, the most critical first, and one
// that asks for less gets all.
func TestBucket(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rate, cost float64
		asked      [5]float64 // requests a second, by criticality
		want       [5]float64 // served
	}{
		{rate: 100, cost: 1, asked: [5]float64{0, 1000, 0, 0, 0}, want: [5]float64{0, 100, 0, 0, 0}},
		{rate: 100, cost: 1, asked: [5]float64{0, 1000, 10, 40, 10}, want: [5]float64{0, 40, 10, 40, 10}},
		{rate: 100, cost: 1, asked: [5]float64{0, 400, 400, 400, 60}, want: [5]float64{0, 0, 0, 40, 60}},
		{rate: 5, cost: .01, asked: [5]float64{0, 0, 0, 5000, 0}, want: [5]float64{0, 0, 0, 500, 0}},
		{rate: .5, cost: 1, asked: [5]float64{0, 0, 0, 20, 0}, want: [5]float64{0, 0, 0, .5, 0}},
		{rate: 2, cost: 1, asked: [5]float64{0, 0, 0, 1, 0}, want: [5]float64{0, 0, 0, 1, 0}},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		var b overload.Bucket
		b.SetRate(0, tc.rate, tc.cost)
		var served [5]float64
		const seconds, step = 2000, time.Millisecond
		for now := time.Duration(0); now < seconds*time.Second; now += step {
			for c, asked := range tc.asked {
				for n := asked * step.Seconds(); n > 0; n-- {
					if r.Float64() < n && b.Take(now, overload.Criticality(c), tc.cost) {
						served[c] += 1. / seconds
					}
				}
			}
		}
		for c, want := range tc.want {
			if math.Abs(served[c]-want) > .05*want+.01*tc.rate {
				t.Errorf("%+v: served %v", tc, served)
				break
			}
		}
	}
}

// What a request has cost after all is taken from those that follow.
func TestBucketSpends(t *testing.T) {
	t.Parallel()
	var b overload.Bucket
	b.SetRate(0, 1, 1)
	served := 0
	for now := time.Duration(0); now < 1000*time.Second; now += 10 * time.Millisecond {
		if b.Take(now, overload.Critical, 1) {
			served++
			b.Spend(4) // five times as much as it seemed
		}
	}
	if served < 195 || served > 205 {
		t.Errorf("served %d of a rate of 1 over 1000 s, with requests that cost 5", served)
	}
	b = overload.Bucket{}
	if b.Take(time.Hour, overload.CriticalPlus, 1) {
		t.Error("the zero value lets something in")
	}
}
