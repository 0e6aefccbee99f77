package slicelet

import (
	"cmp"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// A sketch finds the heaviest keys of a stream by the space-saving algorithm
// (Metwally, Agrawal and El Abbadi, 2005), in sets of a few ways each, as a cache
// is: a key can only be in the set that its low bits name. Slice keys are hashes,
// so sets fill evenly.
//
// It promises: a key that is in the sketch weighs at most its weight and at least
// its weight less over; a key that is not weighs at most the least weight in its
// set. So a key is in the sketch for certain if it weighs more than a quarter of
// its set, about 1/512 of everything.
type sketch struct {
	set [sketchSets]sketchSet
	// over is kept apart, so that the usual update touches one cache line.
	over [sketchSets][sketchWays]float64
}

type sketchSet struct {
	key    [sketchWays]assignment.SliceKey // plus 1; 0 is empty
	weight [sketchWays]float64
}

const (
	sketchSets = 128
	sketchWays = 4
)

func (s *sketch) add(k assignment.SliceKey, w float64) {
	n := k % sketchSets
	t := &s.set[n]
	k++ // as it is kept
	// Sums of conditions instead of a loop: no branch predictor can tell which way it goes.
	at := (bit(t.key[1] == k) + 2*bit(t.key[2] == k) + 3*bit(t.key[3] == k)) % sketchWays
	if t.key[at] != k { // the least makes room
		a := bit(t.weight[1] < t.weight[0]) % sketchWays
		b := (2 + bit(t.weight[3] < t.weight[2])) % sketchWays
		at = (a + (b-a)*bit(t.weight[b] < t.weight[a])) % sketchWays
		t.key[at] = k
		s.over[n][at] = t.weight[at]
	}
	t.weight[at] += w
}

func bit(b bool) uint {
	if b {
		return 1
	}
	return 0
}

// heavy is a key with its weight, of which over may be due to others.
type heavy struct {
	key          assignment.SliceKey
	weight, over float64
}

// sure is what the key weighs at the least.
func (h heavy) sure() float64 { return h.weight - h.over }

// merge returns the keys of all sketches, in no order, with what they weigh in
// the streams together; it promises what a sketch does.
func merge(sketches []*sketch) []heavy {
	var all []heavy
	for n := range sketchSets {
		all = mergeSet(all, sketches, n)
	}
	return all
}

// mergeSet adds one set's keys. A key that one of the sketches does not have may
// weigh as much there as the least that it has.
func mergeSet(all []heavy, sketches []*sketch, n int) []heavy {
	first, leasts := len(all), 0.0
	for _, s := range sketches {
		t := &s.set[n]
		least := slices.Min(t.weight[:])
		leasts += least
		for i, w := range t.weight {
			if w > 0 {
				// The least is taken off here and added once for all below.
				all = append(all, heavy{t.key[i] - 1, w - least, s.over[n][i] - least})
			}
		}
	}
	found := all[first:]
	slices.SortFunc(found, func(a, b heavy) int { return cmp.Compare(a.key, b.key) })
	distinct := 0
	for _, h := range found {
		if distinct > 0 && found[distinct-1].key == h.key {
			found[distinct-1].weight += h.weight
			found[distinct-1].over += h.over
			continue
		}
		found[distinct] = h
		distinct++
	}
	for i := range found[:distinct] {
		found[i].weight += leasts
		found[i].over += leasts
	}
	return all[:first+distinct]
}
