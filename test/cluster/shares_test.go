package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// shares compare what a task refuses of each criticality, in each moment by itself: what it can do,
// and what clerks send it, changes. As soon as it has room they send what is sheddable, as long as
// it has not they send that to others, so in a whole flood it may refuse half of what is critical and
// a fifth of what is sheddable, and never one before the other. (The sum over the moments is that of
// Mantel and Haenszel, Statistical Aspects of the Analysis of Data From Retrospective Studies of
// Disease, 1959.)
type shares struct {
	asked, refused [overload.CriticalPlus + 1]float64 // since the last moment
	// By the less and the more critical: how many of the latter were refused beyond what would be if
	// it was by chance which of both are, and the variance of that.
	beyond, variance [overload.CriticalPlus + 1][overload.CriticalPlus + 1]float64
}

// count takes what became of a request.
func (s *shares) count(c overload.Criticality, refused bool) {
	if s.asked[c]++; refused {
		s.refused[c]++
	}
}

// moment ends one.
func (s *shares) moment() {
	for low := overload.Sheddable; low < overload.CriticalPlus; low++ {
		for high := low + 1; high <= overload.CriticalPlus; high++ {
			m, n, refused := s.asked[low], s.asked[high], s.refused[low]+s.refused[high]
			if all := m + n; m > 0 && n > 0 {
				s.beyond[low][high] += s.refused[high] - refused*n/all
				s.variance[low][high] += refused * (all - refused) * m * n / (all * all * (all - 1))
			}
		}
	}
	s.asked, s.refused = [len(s.asked)]float64{}, [len(s.refused)]float64{}
}

// unfair says of which criticality more was refused than of one below, beyond chance, and "" if of
// none. Of few that are refused five standard deviations say little, so five requests besides.
func (s *shares) unfair() string {
	for low := overload.Sheddable; low < overload.CriticalPlus; low++ {
		for high := low + 1; high <= overload.CriticalPlus; high++ {
			if by, chance := s.beyond[low][high], math.Sqrt(s.variance[low][high]); by > 5*chance+5 {
				return fmt.Sprintf("%.0f %s requests more than if %s ones were refused alike, where chance is %.1f", by, high, low, chance)
			}
		}
	}
	return ""
}

// TestShares: requests that are refused by chance are fair, and so are shares of a whole flood that
// come from when what is asked for; a few more that are refused of what is critical are not.
func TestShares(t *testing.T) {
	for name, c := range map[string]struct {
		refuses   func(second int, c overload.Criticality) float64
		sheddable func(second int) float64 // share of what is asked for
		unfair    bool
	}{
		"by chance":         {func(int, overload.Criticality) float64 { return .5 }, func(int) float64 { return .3 }, false},
		"in turns":          {func(second int, _ overload.Criticality) float64 { return .9 * float64(second%2) }, func(second int) float64 { return .5 - .45*float64(second%2) }, false},
		"the critical":      {func(_ int, c overload.Criticality) float64 { return .1 + .5*float64(c/overload.Critical) }, func(int) float64 { return .3 }, true},
		"the sheddable":     {func(_ int, c overload.Criticality) float64 { return .6 - .5*float64(c/overload.Critical) }, func(int) float64 { return .3 }, false},
		"nothing":           {func(int, overload.Criticality) float64 { return 0 }, func(int) float64 { return .3 }, false},
		"all":               {func(int, overload.Criticality) float64 { return 1 }, func(int) float64 { return .3 }, false},
		"nothing sheddable": {func(int, overload.Criticality) float64 { return .5 }, func(int) float64 { return 0 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				rng := rand.New(rand.NewPCG(seed, 9))
				var s shares
				for second := range 10 {
					for range 20 {
						for range 5 {
							of := overload.Critical
							if rng.Float64() < c.sheddable(second) {
								of = overload.Sheddable
							}
							s.count(of, rng.Float64() < c.refuses(second, of))
						}
						s.moment()
					}
				}
				if why := s.unfair(); (why != "") != c.unfair {
					t.Errorf("seed %d: %q, want it to be unfair: %t", seed, why, c.unfair)
				}
			}
		})
	}
}
