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
	key    [sketchWays]assignment.SliceKey
	weight [sketchWays]float64 // 0 is empty
}

const (
	sketchSets = 128
	sketchWays = 4
)

func (s *sketch) add(k assignment.SliceKey, w float64) {
	n := k % sketchSets
	t := &s.set[n]
	if t.key[0] == k {
		t.weight[0] += w
		return
	}
	for i := 1; i < sketchWays; i++ {
		if t.key[i] != k {
			continue
		}
		t.weight[i] += w
		if t.weight[i] > t.weight[i-1] { // the heaviest to the front, where it is found at once
			o := &s.over[n]
			t.key[i], t.key[i-1] = t.key[i-1], t.key[i]
			t.weight[i], t.weight[i-1] = t.weight[i-1], t.weight[i]
			o[i], o[i-1] = o[i-1], o[i]
		}
		return
	}
	least := sketchWays - 1
	for i := sketchWays - 2; i >= 0; i-- {
		if t.weight[i] < t.weight[least] {
			least = i
		}
	}
	t.key[least] = k
	s.over[n][least] = t.weight[least]
	t.weight[least] += w
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
				all = append(all, heavy{t.key[i], w - least, s.over[n][i] - least})
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
