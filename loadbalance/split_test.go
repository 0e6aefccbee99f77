package loadbalance_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// Slices are split as if all were looked at for each split: the hottest first while it is
// twice as hot as the mean, up to the largest number.
func TestSplitsTheHottest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		n, most := rapid.IntRange(1, 200).Draw(t, "slices"), rapid.IntRange(1, 400).Draw(t, "most")
		tail := rapid.SampledFrom([]float64{.3, 1, 3}).Draw(t, "tail")
		cfg := config(1, 1)
		cfg.Balance.MinSlicesPerTask, cfg.Balance.MaxSlicesPerTask = n, max(n, most)
		p := assignment.Placement{Starts: assignment.Equal(n), Owners: make([]uint32, n)}
		a, err := assignment.Successor(nil, assignment.Header{Job: "job", Generation: 1}, fleet(1), p)
		if err != nil {
			t.Fatal(err)
		}
		l := &loadbalance.Loads{Task: make([]float64, 1)}
		type piece struct {
			s    assignment.Slice
			load float64
		}
		var all []piece
		total := 0.0
		for i := range n {
			l.Slice = append(l.Slice, math.Round(8*math.Exp(tail*rng.NormFloat64()))) // some alike
			all = append(all, piece{a.Slice(i), l.Slice[i]})
			total += l.Slice[i]
		}
		var want []assignment.Slice
		for len(all) < cfg.Balance.MaxSlicesPerTask {
			hot := 0
			for i := range all {
				if all[i].load > all[hot].load {
					hot = i
				}
			}
			x := all[hot]
			if x.load <= 0 || x.load*float64(len(all)) < 2*total {
				break
			}
			want = append(want, x.s)
			mid := x.s.Start + assignment.SliceKey(x.s.Width()/2)
			all[hot] = piece{assignment.Slice{Start: x.s.Start, End: mid}, x.load / 2}
			all = append(all, piece{assignment.Slice{Start: mid, End: x.s.End}, x.load / 2})
		}
		out := loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: fleet(1), Config: cfg, Published: true, Loads: l, Elapsed: time.Minute})
		var got []assignment.Slice
		for _, d := range out.Decisions {
			if d.Kind == loadbalance.KindSplit {
				got = append(got, d.Slice)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%d splits, want %d: %s", len(got), len(want), d)
		}
	})
}
