package overload

import (
	"cmp"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

const (
	// maxHeavy is how many keys are held to their part.
	maxHeavy = 16
	// partOf is what share of what a task serves the parts are of: as requests come in bursts,
	// more would have some of the light keys' refused (TestHandlersFull). Heavy keys get the
	// rest all the same, where there is room.
	partOf = .9
)

// KeyRate is how many requests a second a key asks for.
type KeyRate struct {
	Key  assignment.SliceKey
	Rate float64
}

// HeavyKeys are those that ask for more than an equal part of what a task serves: of these
// the requests above that part rank last within their criticality, so that one key that all
// ask for takes nothing from its neighbours; but not within a criticality for all of which there is
// room, where a hot key's requests would be the only ones that lose by chance. (Equal parts are
// max-min fair: who asks for less gets all, and what is left is shared evenly.) It does not change.
// Nil holds none.
type HeavyKeys struct {
	keys  []assignment.SliceKey
	keep  []float64 // the share that does not rank last
	below Priority  // what is not below ranks as it is
}

// NewHeavyKeys works out the equal part, for a task that is asked for so many requests a
// second and serves so many. The keys are the heaviest there are, in any order. It returns
// nil if the task serves all, or if no key asks for more than its part.
func NewHeavyKeys(asked, served float64, keys []KeyRate) *HeavyKeys {
	if !(served > 0) || !(asked > served) {
		return nil
	}
	keys = slices.DeleteFunc(slices.Clone(keys), func(k KeyRate) bool { return !(k.Rate > 0) })
	slices.SortFunc(keys, func(a, b KeyRate) int {
		switch {
		case a.Rate != b.Rate && a.Rate > b.Rate:
			return -1
		case a.Rate != b.Rate:
			return 1
		}
		return int(int64(a.Key>>1) - int64(b.Key>>1))
	})
	h, others, part := &HeavyKeys{below: Priorities}, asked, 0.
	for i, k := range keys[:min(len(keys), maxHeavy)] {
		// If the keys to here share what the others leave, does this one ask for more?
		next := max(partOf*served-max(others-k.Rate, 0), 0) / float64(i+1)
		if k.Rate <= next {
			break
		}
		others = max(others-k.Rate, 0)
		part = next
		h.keys = append(h.keys, k.Key)
	}
	if len(h.keys) == 0 || others > partOf*served { // it is not these keys that are too much
		return nil
	}
	for i := range h.keys {
		h.keep = append(h.keep, part/keys[i].Rate)
	}
	return h
}

// HeavyKeys is NewHeavyKeys for a task with these limits, that in a time was asked for so many
// requests a second and served so many. Within criticalities for which there is room none rank last.
func (l *Limits) HeavyKeys(asked, served float64, keys []KeyRate) *HeavyKeys {
	h := NewHeavyKeys(asked, l.serves(asked, served), keys)
	if h != nil {
		h.below = cmp.Or(l.fits, Priorities)
	}
	return h
}

// serves is of how much the parts are. What handlers can do counts while they are full: more is let
// in before that is known, and less while those end that had been let in. By a signal all that ranks
// last is refused, so of what was served the parts would get ever less: what the signal leaves of
// what is asked for counts, unless handlers or the CPU can do less.
func (l *Limits) serves(asked, served float64) float64 {
	if l.signal <= 1 {
		return cmp.Or(l.can, served)
	}
	left := asked / l.signal
	if l.can > 0 {
		left = min(left, l.can)
	}
	if l.Spacing > 0 {
		left = min(left, 1/l.Spacing.Seconds())
	}
	return left
}

// Rank is the priority by which a request for a key is to be admitted: its own, or the lowest
// of its criticality, which others do not have then. Of a heavy key it is the last cohorts that rank low, so that of
// what one user's request causes all is served or none.
func (h *HeavyKeys) Rank(p Priority, k assignment.SliceKey) Priority {
	if h == nil || p >= h.below {
		return p
	}
	at := p % Cohorts
	if i := slices.Index(h.keys, k); i >= 0 && float64(at) < Cohorts*(1-h.keep[i]) {
		return p - at
	}
	return p - at + max(at, 1)
}
