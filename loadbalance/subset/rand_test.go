package subset

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// SplitMix64's published first outputs for two seeds.
func TestGeneratorIsSplitMix64(t *testing.T) {
	for seed, want := range map[uint64][]uint64{
		0:       {0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f},
		1234567: {6457827717110365317, 3203168211198807973, 9817491932198370423},
	} {
		r := rng{seed}
		for i, w := range want {
			if got := (rng{seed}).at(uint64(i)); got != w {
				t.Errorf("seed %d: draw %d by at is %d, want %d", seed, i, got, w)
			}
			if got := r.next(); got != w {
				t.Errorf("seed %d: draw %d is %d, want %d", seed, i, got, w)
			}
		}
	}
}

// What every client must compute alike. These literals never change.
func TestGeneratorFrozen(t *testing.T) {
	r := newRNG(1)
	if got, want := []uint64{r.next(), r.next()}, frozenDraws; !slices.Equal(got, want) {
		t.Errorf("draws of newRNG(1): %#x, want %#x", got, want)
	}
	r = fork(1, 2)
	if got, want := []uint64{r.below(10), r.below(10), r.below(10), r.below(1000)}, frozenBelow; !slices.Equal(got, want) {
		t.Errorf("bounded draws of fork(1, 2): %d, want %d", got, want)
	}
	s := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	r = newRNG(7)
	shuffle(&r, s)
	if !slices.Equal(s, frozenShuffle) {
		t.Errorf("shuffle of 0..9 by newRNG(7): %v, want %v", s, frozenShuffle)
	}
}

var (
	frozenDraws   = []uint64{0x5e41ab087439611e, 0xf18d6ce93d6cf1ee}
	frozenBelow   = []uint64{8, 9, 8, 794}
	frozenShuffle = []int{2, 9, 4, 0, 3, 7, 6, 1, 5, 8}
)

// Every outcome of a shuffle is about equally likely: chi-squared over the 24
// orders of four, whose 99.9th percentile for 23 degrees of freedom is 49.7.
func TestShuffleIsUniform(t *testing.T) {
	const rounds = 24000
	counts := map[[4]int]int{}
	for seed := range uint64(rounds) {
		r := newRNG(seed)
		s := [4]int{0, 1, 2, 3}
		shuffle(&r, s[:])
		counts[s]++
	}
	chi := 0.0
	for _, c := range counts {
		d := float64(c) - rounds/24
		chi += d * d / (rounds / 24)
	}
	if len(counts) != 24 || chi > 49.7 {
		t.Errorf("%d orders of 24, chi-squared %.1f", len(counts), chi)
	}
}

func TestXXH64(t *testing.T) {
	forSeeds(t, 3, func(t *testing.T, r *rand.Rand) {
		for range 1000 {
			seed, v := r.Uint64(), r.Uint64()
			d := xxhash.NewWithSeed(seed)
			d.Write(binary.LittleEndian.AppendUint64(nil, v))
			if got, want := xxh64(seed, v), d.Sum64(); got != want {
				t.Fatalf("xxh64(%#x, %#x) = %#x, want %#x", seed, v, got, want)
			}
		}
	})
}
