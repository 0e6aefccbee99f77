package subset

import "slices"

// Deterministic subsetting deals a shuffled deck: the frontends of one round take k cards
// each from one shuffle of the backends, the next round shuffles anew with the round's
// number as its seed. The N mod k backends that are left over go unused in that round,
// because carrying them into the next would make a frontend depend on every shuffle
// before its own. The two forms differ in which backends are left over.

// DeterministicDropped is deterministic subsetting as the SRE book has it
// (Site Reliability Engineering, chapter 20, "A Subset Selection Algorithm:
// Deterministic Subsetting"): the last N mod k backends of each round's shuffle
// are left over, whichever they are.
type DeterministicDropped struct{}

// Name implements [Algorithm].
func (DeterministicDropped) Name() string { return "deterministic-dropped" }

// Append implements [Algorithm]. It takes time linear in N.
func (DeterministicDropped) Append(dst []int, s Shape, frontend int) ([]int, error) {
	k, err := s.size(frontend)
	if err != nil {
		return dst, err
	}
	n := s.Backends.Len()
	round, hand := deal(frontend, n/k)
	deck := s.Backends.Append(slices.Grow(dst, n))
	return take(deck, len(dst), round, hand*k, k), nil
}

// DeterministicBalanced is deterministic subsetting as "Reinventing Backend
// Subsetting at Google" improves it (section "The Previous Approach",
// Deterministic subsetting): the leftovers of each round are chosen before the
// shuffle, in turn, so that every backend is left over equally often.
type DeterministicBalanced struct{}

// Name implements [Algorithm].
func (DeterministicBalanced) Name() string { return "deterministic-balanced" }

// Append implements [Algorithm]. It takes time linear in N.
func (DeterministicBalanced) Append(dst []int, s Shape, frontend int) ([]int, error) {
	k, err := s.size(frontend)
	if err != nil {
		return dst, err
	}
	n := s.Backends.Len()
	round, hand := deal(frontend, n/k)
	first, left := leftovers(round, n, k)
	deck := slices.Grow(dst, n)
	if past := first + left - n; past > 0 { // the range wraps
		deck = s.Backends.appendFrom(deck, past, n-left)
	} else {
		deck = s.Backends.appendFrom(deck, 0, first)
		deck = s.Backends.appendFrom(deck, first+left, -past)
	}
	return take(deck, len(dst), round, hand*k, k), nil
}

// deal says in which round a frontend is, and which of the round's hands it
// gets.
func deal(frontend, hands int) (round, hand int) {
	return frontend / hands, frontend % hands
}

// leftovers returns the cyclic range of ranks that a round leaves out.
func leftovers(round, n, k int) (first, count int) {
	count = n % k
	return int(uint64(round) * uint64(count) % uint64(n)), count
}

// take shuffles deck[base:] for the round and moves k cards, from start on, to
// its front.
func take(deck []int, base, round, start, k int) []int {
	cards := deck[base:]
	r := newRNG(uint64(round))
	shuffle(&r, cards)
	copy(cards, cards[start:start+k])
	return deck[:base+k]
}
