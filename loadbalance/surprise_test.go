package loadbalance

import (
	"math/rand/v2"
	"testing"
)

// That most of the load is elsewhere is a surprise from the fourth measurement on, and none
// where it is so in every round.
func TestSurpriseAtFirst(t *testing.T) {
	const slices = 200
	rng := rand.New(rand.NewPCG(1, 1))
	rate, width := make([]float64, slices), make([]float64, slices)
	for i := range rate {
		rate[i], width[i] = 1000/float64(i+1), 1./slices
	}
	shift := func() { rng.Shuffle(slices, func(i, k int) { rate[i], rate[k] = rate[k], rate[i] }) }
	for _, rounds := range []int{3, 5, 10, 20} {
		s := smoother{cells: make([]estimate, slices)}
		for n := range rounds {
			s.update(rate, width, .25, .25/10)
			if s.trust.surprise != 0 {
				t.Errorf("at rest, round %d: a surprise of %.2f", n+1, s.trust.surprise)
			}
		}
		shift()
		s.update(rate, width, .25, .25/10)
		if s.trust.surprise == 0 {
			t.Errorf("a shift after %d rounds is no surprise", rounds)
		}
	}
	s := smoother{cells: make([]estimate, slices)}
	for n := range 30 {
		shift()
		s.update(rate, width, .25, .25/10)
		if s.trust.surprise != 0 {
			t.Errorf("elsewhere in every round, round %d: a surprise of %.2f", n+1, s.trust.surprise)
		}
	}
}
