package loadbalance_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// TestLastToJoin has tasks join an idle job that begins with a few, all but the last at once: the
// others are even then, and none has more than its share by as much as half a slice. The last must
// own something, and in the end have half of its share, whatever its age and theirs.
func TestLastToJoin(t *testing.T) {
	for _, age := range []time.Duration{time.Second, 10 * time.Minute} {
		for _, warmUp := range []time.Duration{assignment.NoWarmUp, 30 * time.Second} {
			for _, first := range []int{1, 2, 4, 7} {
				for n := first + 2; n <= 64; n++ {
					w := &warming{t: t, cfg: config(1, 2), tasks: fleet(first)}
					w.cfg.WarmUp = warmUp
					w.out = loadbalance.Rebalance(loadbalance.Input{Tasks: w.tasks, Config: w.cfg})
					w.a = follow(t, nil, w.tasks, w.out)
					w.tasks, w.ages = fleet(n-1), slices.Repeat([]time.Duration{age}, n-1)
					for range 12 {
						w.round(true)
					}
					w.tasks, w.ages = fleet(n), append(w.ages, 0)
					has := func() (slices int, share float64) {
						for s, r := range w.a.All() {
							for k := range r.Len() {
								if r.Position(k) == n-1 {
									slices++
									share += s.Fraction() / float64(r.Len())
								}
							}
						}
						return slices, share
					}
					w.round(true)
					what := fmt.Sprintf("%d tasks, %d at first, others %v old, warm-up %v", n, first, age, warmUp)
					if k, _ := has(); k == 0 {
						t.Errorf("%s: the last owns nothing", what)
						continue
					}
					w.ages[n-1] = warmUp
					for range 12 {
						w.round(true)
					}
					if k, x := has(); x < .5/float64(n) {
						t.Errorf("%s: in the end the last has %d slices, %.2f of its share", what, k, x*float64(n))
					}
				}
			}
		}
	}
}
