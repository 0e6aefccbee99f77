package subset

import (
	"math/bits"
	"slices"
)

// Random shuffles the backends anew for every frontend and takes the first k
// ("Reinventing Backend Subsetting at Google", section "The Previous
// Approach", Random subsetting). Diverse and indifferent to changes of M and k,
// but the connections per backend are as uneven as chance makes them.
type Random struct {
	Seed uint64 // any value; frontends must share it
}

// Name implements [Algorithm].
func (Random) Name() string { return "random" }

// Append implements [Algorithm]. It takes time linear in N.
func (a Random) Append(dst []int, s Shape, frontend int) ([]int, error) {
	k, err := s.size(frontend)
	if err != nil {
		return dst, err
	}
	base := len(dst)
	dst = s.Backends.Append(slices.Grow(dst, s.Backends.Len()))
	r := fork(a.Seed, uint64(frontend))
	shuffle(&r, dst[base:])
	return dst[:base+k], nil
}

// RoundRobin gives frontend m the k backends that follow those of frontend m-1
// (article, section "The Previous Approach", Round-robin subsetting). The
// balance is ideal, but only N/gcd(k, N) subsets exist, each a block of
// neighbours that a rolling restart takes down together.
type RoundRobin struct{}

// Name implements [Algorithm].
func (RoundRobin) Name() string { return "round-robin" }

// Append implements [Algorithm]. It takes time linear in k, plus N/64 if there
// are holes; it needs room for k only.
func (RoundRobin) Append(dst []int, s Shape, frontend int) ([]int, error) {
	k, err := s.size(frontend)
	if err != nil {
		return dst, err
	}
	hi, lo := bits.Mul64(uint64(frontend), uint64(k))
	start := bits.Rem64(hi, lo, uint64(s.Backends.Len()))
	return s.Backends.appendFrom(slices.Grow(dst, k), int(start), k), nil
}
