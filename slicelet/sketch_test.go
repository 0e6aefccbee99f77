package slicelet

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
)

// exact counts.
type exact map[assignment.SliceKey]float64

// check compares what sketches say with the truth. Weights are whole numbers, so
// that sums are exact.
func check(t interface{ Fatalf(string, ...any) }, sketches []*sketch, truth exact) {
	found := make(map[assignment.SliceKey]heavy)
	perSet := make([]float64, sketchSets)
	for _, h := range merge(sketches) {
		if _, twice := found[h.key]; twice {
			t.Fatalf("key %s is there twice", h.key)
		}
		found[h.key] = h
		if w := truth[h.key]; w > h.weight || w < h.sure() || h.over < 0 {
			t.Fatalf("key %s weighs %v, the sketch says %v to %v", h.key, w, h.sure(), h.weight)
		}
	}
	for k, w := range truth {
		perSet[k%sketchSets] += w
	}
	for k, w := range truth {
		if _, ok := found[k]; !ok && w > perSet[k%sketchSets]/sketchWays {
			t.Fatalf("key %s weighs %v of the %v in its set, and is not found", k, w, perSet[k%sketchSets])
		}
	}
}

func TestSketchBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		distinct := rapid.IntRange(1, 3000).Draw(t, "keys")
		pick := func() int { return rng.IntN(distinct) }
		if s := rapid.Float64Range(1.01, 2.5).Draw(t, "skew"); rapid.Bool().Draw(t, "skewed") {
			zipf := rand.NewZipf(rng, s, 1, uint64(distinct-1))
			pick = func() int { return int(zipf.Uint64()) }
		}
		keys := make([]assignment.SliceKey, distinct)
		for i := range keys {
			keys[i] = assignment.SliceKey(rng.Uint64() >> 1)
		}
		most := rapid.IntRange(1, 100).Draw(t, "heaviest")
		sketches := make([]*sketch, rapid.IntRange(1, 5).Draw(t, "stripes"))
		for i := range sketches {
			sketches[i] = new(sketch)
		}
		truth := make(exact)
		for range rapid.IntRange(0, 20000).Draw(t, "requests") {
			k, w := keys[pick()], float64(1+rng.IntN(most))
			sketches[rng.IntN(len(sketches))].add(k, w)
			truth[k] += w
		}
		check(t, sketches, truth)
	})
}

// With a popularity like that of real keys, all that carry half a percent are found.
func TestSketchFindsTheHeavy(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(rng, 1.05, 1, 1e6)
	s, truth := new(sketch), make(exact)
	const n = 300_000
	for range n {
		k := assignment.SliceKey(zipf.Uint64() * 0x9e3779b97f4a7c15 >> 1)
		s.add(k, 1)
		truth[k]++
	}
	found := merge([]*sketch{s})
	for k, w := range truth {
		if w < n*hotShare {
			continue
		}
		i := slices.IndexFunc(found, func(h heavy) bool { return h.key == k })
		if i < 0 || found[i].sure() < .9*w {
			t.Errorf("a key with %.1f %% of the load is not found, or hardly", 100*w/n)
		}
	}
}

// Key 0 is a key like others, and no empty place.
func TestSketchZeroKey(t *testing.T) {
	s := new(sketch)
	for range 3 {
		s.add(0, 2)
	}
	s.add(sketchSets, 1)
	check(t, []*sketch{s}, exact{0: 6, sketchSets: 1})
	if got := merge([]*sketch{s}); len(got) != 2 {
		t.Errorf("found %v", got)
	}
}
