package live

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestReadings(t *testing.T) {
	began := time.Unix(0, 0)
	var samples []sample
	for i := range int64(5) { // one server gets 30 a second, the other 10
		samples = append(samples, sample{began.Add(time.Duration(i) * time.Second), []int64{30 * i, 10 * i}})
	}
	all := readings(samples)
	if len(all) != 2 || all[0].at != samples[3].at || all[0].imbalance != 1.5 || all[1].imbalance != 1.5 {
		t.Errorf("got %v, want 1.5 at 3 s and at 4 s", all)
	}
	if x := imbalance(samples[0], samples[0]); x != 0 {
		t.Errorf("nothing at all has imbalance %g, want 0", x)
	}
}

func TestReactionNeedsToLast(t *testing.T) {
	began := time.Unix(0, 0)
	var all []reading
	for i, x := range []float64{1.1, 3, 1.1, 1.1, 1.2, 1.1, 1.1, 1, 1, 1, 1, 2} {
		all = append(all, reading{began.Add(time.Duration(i) * time.Second), x})
	}
	if at, ok := reaction(all); !ok || at != all[5].at {
		t.Errorf("got %v, %t, want 5 s", at.Sub(began), ok)
	}
	if at, ok := reaction(all[:10]); ok {
		t.Errorf("after %v is too early to tell", at.Sub(began))
	}
	if got := share(all); got != .25 {
		t.Errorf("%g of the readings are above, want .25", got)
	}
}

// A shift takes every key to another rank and keeps the law.
func TestShift(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	p := newPopularity(rng)
	hot := map[string]bool{}
	for range 20 {
		hot[p.name(0)] = true
		counts := map[string]int{}
		for range 20_000 {
			counts[p.key(rng)]++
		}
		for rank, want := range []float64{.4145, .1466, .0798} {
			if got := float64(counts[p.name(rank)]) / 20_000; got < want-.02 || got > want+.02 {
				t.Errorf("rank %d has %.3f of the load, want %.3f", rank, got, want)
			}
		}
		p.shift()
	}
	if len(hot) != 20 {
		t.Errorf("20 shifts had %d keys as the hottest", len(hot))
	}
}
