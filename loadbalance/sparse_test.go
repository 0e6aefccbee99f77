package loadbalance_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// Where few keys carry everything and few requests are counted, most slices
// were never seen to carry anything. They do not move about: what is even stays.
func TestEmptySlicesStay(t *testing.T) {
	const shifts, every, perSecond, seed = 8, 12, 1500, 3
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	cfg, tasks := config(1, 10), fleet(10)
	keys := zipf(100, 1.5, perSecond)
	seconds := cfg.Balance.Interval.Seconds()
	out := loadbalance.Rebalance(loadbalance.Input{Tasks: tasks, Config: cfg})
	a := follow(t, nil, tasks, out)
	late := 0.0
	for range shifts {
		rng.Shuffle(len(keys), func(i, j int) { keys[i].key, keys[j].key = keys[j].key, keys[i].key })
		for round := range every {
			var counted []keyLoad
			for _, k := range keys {
				counted = append(counted, keyLoad{k.key, poisson(rng, k.rate*seconds) / seconds})
			}
			loads := measure(a, counted)
			for _, k := range counted {
				if k.rate > perSecond/1000 {
					loads.Hot = append(loads.Hot, assignment.HotKey{Key: k.key, Rate: k.rate})
				}
			}
			out = loadbalance.Rebalance(loadbalance.Input{
				Prev: a, Tasks: tasks, Config: cfg, Loads: loads, Elapsed: cfg.Balance.Interval, State: out.State,
			})
			a = follow(t, a, tasks, out)
			if round >= every/2 {
				late += out.Stats.KeyChurn
			}
		}
		if x := imbalance(a, keys); x > 1.15 {
			t.Errorf("imbalance is %.3f a minute after a shift", x)
		}
	}
	if perMinute := late / shifts * 2; perMinute > .002 {
		t.Errorf("%.3f %% of the keyspace move each minute although the load is steady", 100*perMinute)
	}
}

// What was counted in a short window is doubted as such, also when the window before
// is long ago: less moves than if the requests had been counted all the while.
func TestShortWindowsAreDoubted(t *testing.T) {
	const rounds, seeds, window, elapsed = 60, 4, 5 * time.Second, time.Minute
	cfg, tasks := config(1, 1), fleet(10)
	keys := zipf(200, 1, 30)
	churn := func(seed uint64, said time.Duration) (sum float64) {
		rng := rand.New(rand.NewPCG(seed, 0))
		out := loadbalance.Rebalance(loadbalance.Input{Tasks: tasks, Config: cfg})
		a := follow(t, nil, tasks, out)
		for range rounds {
			var counted []keyLoad
			for _, k := range keys {
				counted = append(counted, keyLoad{k.key, poisson(rng, k.rate*window.Seconds()) / window.Seconds()})
			}
			loads := measure(a, counted)
			loads.Window = said
			out = loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Loads: loads, Elapsed: elapsed, State: out.State})
			a = follow(t, a, tasks, out)
			sum += out.Stats.KeyChurn
		}
		return sum
	}
	short, long := 0.0, 0.0
	for seed := range uint64(seeds) {
		short += churn(seed, window) / seeds
		long += churn(seed, 0) / seeds
	}
	t.Logf("%.3f %% of the keyspace move, and %.3f %% if the window is taken to be as long as the gap", 100*short, 100*long)
	if short > .7*long {
		t.Error("as if it had been counted all the while")
	}
}

// poisson draws a number by counting arrivals.
func poisson(rng *rand.Rand, mean float64) float64 {
	n := 0.0
	for at := rng.ExpFloat64(); at < mean; at += rng.ExpFloat64() {
		n++
	}
	return n
}
