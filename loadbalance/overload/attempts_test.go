package overload

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestAttempts: against an oracle that keeps every attempt, in histories of bursts and of
// silence, with a sample whenever an attempt comes. What counts is what has come within the
// window, or within the time between two samples before it.
func TestAttempts(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		var a Attempts
		type attempt struct {
			at    time.Duration
			again bool
		}
		var all []attempt
		var first, again uint64
		now := time.Duration(r.Int64N(int64(time.Hour)))
		share := []float64{0, .03, .05, .07, .5}[seed%5]
		for range 2000 {
			switch r.IntN(50) {
			case 0:
				now += time.Duration(r.Int64N(int64(5 * time.Second)))
			case 1:
				share = min(share*2*r.Float64()+.01, 1)
			default:
				now += time.Duration(r.Int64N(int64(20 * time.Millisecond)))
			}
			a.Sample(now, first, again)
			if one := (attempt{now, r.Float64() < share}); one.again {
				all, again = append(all, one), again+1
			} else {
				all, first = append(all, one), first+1
			}
			// many of those since a moment.
			many := func(since time.Duration) bool {
				f, g := 0, 0
				for i := len(all) - 1; i >= 0 && all[i].at >= since; i-- {
					if all[i].again {
						g++
					} else {
						f++
					}
				}
				return g > 2 && float64(g) > .05*float64(f)
			}
			got := a.Many(now, first, again)
			// Nothing else can be right if it is the same from the window's beginning on
			// and from that of the sample before it, at any time between.
			same, want := true, many(now-AttemptsWindow)
			for back := time.Duration(0); back <= SampleEvery; back += 10 * time.Millisecond {
				same = same && many(now-AttemptsWindow-back) == want
			}
			if same && got != want {
				t.Fatalf("seed %d, after %d attempts: many retries: %t", seed, len(all), got)
			}
		}
		now += AttemptsWindow + SampleEvery
		if a.Sample(now, first, again); a.Many(now, first, again) {
			t.Errorf("seed %d: many retries after a silence", seed)
		}
	}
}

func TestFewAttempts(t *testing.T) {
	for _, now := range []time.Duration{0, time.Millisecond, 1000 * time.Hour} {
		var a Attempts
		for _, c := range []struct {
			first, again uint64
			many         bool
		}{{0, 0, false}, {0, 2, false}, {0, 3, true}, {59, 3, true}, {60, 3, false}, {1000, 50, false}, {1000, 51, true}} {
			if got := a.Many(now, c.first, c.again); got != c.many {
				t.Errorf("at %s, %d first attempts and %d retries: many: %t", now, c.first, c.again, got)
			}
		}
	}
}
