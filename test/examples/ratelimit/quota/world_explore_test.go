package quota

import (
	"fmt"
	"testing"
	"time"
)

func TestExplore(t *testing.T) {
	for _, c := range []struct {
		k      int
		per, x float64
	}{{1, 20, 1.5}, {3, 20, 2}, {20, 20, 2}, {20, 5, 2}, {20, .5, 2}} {
		for _, what := range []string{"calm", "shift", "crash", "loss"} {
			var lo, hi = 9., 0.
			var lo2, hi2 = 9., 0.
			for seed := range uint64(4) {
				r := c.per * float64(c.k)
				w := newWorld(seed, Limit{r, max(1, r/10)}, c.k)
				for i, f := range w.fronts {
					d := c.per * c.x
					f.demand = func(time.Duration) float64 { return d }
					if what == "skewed" {
						f.demand = func(time.Duration) float64 { return d * 2 * (float64(i) + .5) / float64(c.k) }
					}
					if what == "shift" {
						f.demand = func(now time.Duration) float64 {
							if (int(now/(7*time.Second))+i)%2 == 0 || c.k == 1 {
								return 2 * d
							}
							return 0
						}
					}
				}
				switch what {
				case "move":
					w.at(30*time.Second, w.move)
					w.at(60*time.Second, w.move)
				case "crash":
					w.at(30*time.Second, func() { w.crash(5 * time.Second) })
				case "loss":
					w.loss, w.slow = .1, .1
				}
				w.run(90 * time.Second)
				a, b := w.bounds(20*time.Second, 90*time.Second, 1.1)
				lo, hi = min(lo, a), max(hi, b)
				a, b = w.bounds(0*time.Second, 30*time.Second, 1.1)
				lo2, hi2 = min(lo2, a), max(hi2, b)
			}
			fmt.Printf("k=%d per=%g x=%g %-7s %.3f %.3f   start %.3f %.3f\n", c.k, c.per, c.x, what, lo, hi, lo2, hi2)
		}
	}
}
