package subset

import "math/bits"

// The generator and the shuffle of this file are frozen. Clients of different
// versions compute their subsets apart and must come to one answer, so a change
// of any constant or of the order of draws here is a change of the protocol.
// Golden tests hold them in place.
//
// The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", OOPSLA 2014): a counter stepped
// by an odd constant and put through a mixing bijection. Any draw can be had
// without those before it, so that one seed gives a family of generators.

// gamma is the generator's step: 2^64 divided by the golden ratio, made odd.
const gamma = 0x9e3779b97f4a7c15

type rng struct{ state uint64 }

// newRNG returns the generator for a seed. Seeds here are small consecutive
// numbers; taking the seed's first draw as the state sets the streams of
// neighbouring seeds far apart on the counter.
func newRNG(seed uint64) rng {
	r := rng{seed}
	return rng{r.next()}
}

// fork returns generator number n of the family that seed names.
func fork(seed, n uint64) rng {
	return newRNG(newRNG(seed).at(n))
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// next draws 64 bits.
func (r *rng) next() uint64 {
	r.state += gamma
	return mix(r.state)
}

// at returns the draw that follows n others, and draws nothing.
func (r rng) at(n uint64) uint64 { return mix(r.state + (n+1)*gamma) }

// below draws a number in [0, n), n > 1, each equally likely: draws of as many
// bits as n-1 has, until one is below n.
//
// Scaling one draw to n would be quicker, but would move half of all numbers
// when n grows by 1, where this moves few: random and deterministic subsetting
// churn less by it.
func (r *rng) below(n uint64) uint64 {
	shift := 64 - bits.Len64(n-1)
	for {
		if x := r.next() >> shift; x < n {
			return x
		}
	}
}

// shuffle is a Fisher-Yates shuffle, back to front.
func shuffle[T any](r *rng, s []T) {
	for i := len(s) - 1; i > 0; i-- {
		j := r.below(uint64(i) + 1)
		s[i], s[j] = s[j], s[i]
	}
}
