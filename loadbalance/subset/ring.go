package subset

import "math/bits"

// ring walks the numbers 0 to n-1 in the order of their positions on the
// circle, where number i sits at element i of the binary van der Corput
// sequence: i's bits mirrored about the binary point, as a fraction of a turn.
//
// The walk needs no sorting. With w bits, enough for n-1, mirroring permutes
// 0..2^w-1 and is its own inverse, so mirroring a position gives the number
// that sits there; positions whose number is n or more are passed over, and
// they are fewer than half (Ringsteady footnote post, "linear time").
type ring struct {
	n     uint64
	mask  uint64 // 2^w - 1
	shift uint   // 64 - w
	pos   uint64 // next position to visit, in 2^-w turns
}

// newRing returns the walk over n numbers, n > 0, from the top of the circle.
func newRing(n int) ring {
	w := bits.Len64(uint64(n - 1))
	return ring{n: uint64(n), mask: 1<<w - 1, shift: uint(64 - w)}
}

// next returns the next number clockwise, round and round without end.
func (r *ring) next() int {
	for {
		i := bits.Reverse64(r.pos) >> r.shift
		r.pos = (r.pos + 1) & r.mask
		if i < r.n {
			return int(i)
		}
	}
}

// seekTurn moves to the first position at or clockwise of turn/2^64 of a turn.
func (r *ring) seekTurn(turn uint64) {
	p := turn >> r.shift
	if p<<r.shift != turn {
		p++
	}
	r.pos = p & r.mask
}

// seekRank moves to the number that rank others of 0..n-1 precede in the walk
// from the top, in logarithmic time: numbers that agree in their low bits are
// consecutive in the walk, so the bits are found one by one, lowest first, by
// counting how many numbers have a 0 there.
func (r *ring) seekRank(rank int) {
	low := uint64(0)
	for b := range 64 - r.shift {
		zeros := congruent(r.n, low, b+1)
		if uint64(rank) >= zeros {
			rank -= int(zeros)
			low |= 1 << b
		}
	}
	r.pos = bits.Reverse64(low) >> r.shift
}

// ringRank returns how many of 0..n-1 precede i in the walk from the top.
func ringRank(i, n int) int {
	rank := uint64(0)
	for b := range uint(bits.Len64(uint64(i))) {
		if uint64(i)>>b&1 != 0 {
			rank += congruent(uint64(n), uint64(i)&(1<<b-1), b+1)
		}
	}
	return int(rank)
}

// congruent counts the numbers below n whose low b bits are those of low, which
// has no others and is below n itself.
func congruent(n, low uint64, b uint) uint64 { return (n-low-1)>>b + 1 }

// turn returns frontend's van der Corput position, in 2^-64 turns.
func turn(frontend int) uint64 { return bits.Reverse64(uint64(frontend)) }

// rotation returns how many of n evenly spaced positions lie before the one
// that frontend, at its van der Corput position, meets first:
// ceil(position * n) mod n, exactly.
func rotation(frontend, n int) int {
	hi, lo := bits.Mul64(turn(frontend), uint64(n))
	if lo != 0 {
		hi++
	}
	return int(hi % uint64(n))
}
