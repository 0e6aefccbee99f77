package subset

import "math/bits"

// Consistent places both jobs' tasks on a circle at random and gives each
// frontend the k backends that it meets clockwise ("Reinventing Backend
// Subsetting at Google", section "In Search of a New Algorithm", Consistent
// subsetting). A new backend changes at most one connection of each frontend,
// but the balance is no better than chance and at most N subsets exist.
type Consistent struct {
	Seed uint64 // any value; frontends must share it
}

// Name implements [Algorithm].
func (Consistent) Name() string { return "consistent" }

// Append implements [Algorithm]. It takes time linear in N (times log k in the
// worst case) and needs room for k only.
func (a Consistent) Append(dst []int, s Shape, frontend int) ([]int, error) {
	k, err := s.size(frontend)
	if err != nil {
		return dst, err
	}
	from := fork(a.Seed, 0).at(uint64(frontend))
	positions := fork(a.Seed, 1)
	return appendLowest(dst, s.Backends, k, func(task int) uint64 {
		return positions.at(uint64(task)) - from // clockwise, modulo one turn
	}), nil
}

// Rendezvous is gRPC's random_subsetting policy (gRFC A68, "Subsetting
// algorithm"), here for comparison: each client hashes every backend with a
// seed of its own by XXH64 and takes the k lowest hashes. Where the policy
// hashes a backend's address, this hashes its index as 8 bytes, little end
// first. Churn is the least possible; balance is that of chance.
type Rendezvous struct {
	Seed uint64 // any value; the clients' own seeds are drawn from it
}

// Name implements [Algorithm].
func (Rendezvous) Name() string { return "rendezvous" }

// Append implements [Algorithm]. It takes time linear in N (times log k in the
// worst case) and needs room for k only.
func (a Rendezvous) Append(dst []int, s Shape, frontend int) ([]int, error) {
	k, err := s.size(frontend)
	if err != nil {
		return dst, err
	}
	seed := newRNG(a.Seed).at(uint64(frontend))
	return appendLowest(dst, s.Backends, k, func(task int) uint64 {
		return xxh64(seed, uint64(task))
	}), nil
}

// xxh64 is the XXH64 hash of v's 8 bytes, little end first: the path of the
// algorithm's specification that an input of that length takes.
func xxh64(seed, v uint64) uint64 {
	const (
		p1 = 0x9e3779b185ebca87
		p2 = 0xc2b2ae3d27d4eb4f
		p3 = 0x165667b19e3779f9
		p4 = 0x85ebca77c2b2ae63
		p5 = 0x27d4eb2f165667c5
	)
	h := seed + p5 + 8
	h ^= bits.RotateLeft64(v*p2, 31) * p1
	h = bits.RotateLeft64(h, 27)*p1 + p4
	h = (h ^ h>>33) * p2
	h = (h ^ h>>29) * p3
	return h ^ h>>32
}
