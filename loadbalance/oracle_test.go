package loadbalance_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// scan is phase 4 of the published algorithm read off the paper, with linear
// scans and nothing kept from one move to the next but the loads.
type scan struct {
	width, rate []float64
	owners      [][]uint32
	load        []float64
	least, most int
}

// move is one of the three that the paper considers for a slice.
type move struct {
	slice  int
	kind   loadbalance.Kind
	weight float64
}

func (s *scan) run(budget float64) (moves int) {
	mean := 0.0
	for i, o := range s.owners {
		for _, t := range o {
			s.load[t] += s.rate[i] / float64(len(o))
		}
		mean += s.rate[i]
	}
	mean /= float64(len(s.load))
	for {
		hot, cold := uint32(0), uint32(0)
		for t := range s.load {
			if s.load[t] > s.load[hot] {
				hot = uint32(t)
			}
			if s.load[t] < s.load[cold] {
				cold = uint32(t)
			}
		}
		var best move
		for i := range s.owners {
			if !slices.Contains(s.owners[i], hot) || s.width[i] > budget {
				continue
			}
			for _, k := range []loadbalance.Kind{loadbalance.KindMove, loadbalance.KindReplicate, loadbalance.KindRemove} {
				after := s.try(i, k, hot, cold)
				if after == nil {
					continue
				}
				m := move{i, k, (s.load[hot] - s.top(i, after)) / mean / s.width[i]}
				if m.weight*s.width[i] > 1e-9 && m.weight > best.weight {
					best = m
				}
			}
		}
		if best.kind == "" {
			return moves
		}
		after := s.try(best.slice, best.kind, hot, cold)
		for _, t := range s.owners[best.slice] {
			s.load[t] -= s.rate[best.slice] / float64(len(s.owners[best.slice]))
		}
		for _, t := range after {
			s.load[t] += s.rate[best.slice] / float64(len(after))
		}
		s.owners[best.slice] = after
		budget -= s.width[best.slice]
		moves++
	}
}

// try gives the owners that slice i would have; nil when that is not allowed.
func (s *scan) try(i int, k loadbalance.Kind, hot, cold uint32) []uint32 {
	o := s.owners[i]
	switch {
	case k == loadbalance.KindRemove && len(o) > s.least:
		return slices.DeleteFunc(slices.Clone(o), func(t uint32) bool { return t == hot })
	case k == loadbalance.KindRemove || slices.Contains(o, cold):
		return nil
	case k == loadbalance.KindReplicate && len(o) < s.most:
		return append(slices.Clone(o), cold)
	case k == loadbalance.KindMove:
		c := slices.Clone(o)
		c[slices.Index(c, hot)] = cold
		return c
	}
	return nil
}

// top is the largest load among the tasks that a change of slice i affects.
func (s *scan) top(i int, after []uint32) float64 {
	top := 0.0
	share := func(o []uint32, t uint32) float64 {
		if slices.Contains(o, t) {
			return s.rate[i] / float64(len(o))
		}
		return 0
	}
	for _, t := range append(slices.Clone(after), s.owners[i]...) {
		was, is := share(s.owners[i], t), share(after, t)
		if was != is || slices.Contains(s.owners[i], t) != slices.Contains(after, t) {
			top = max(top, s.load[t]-was+is)
		}
	}
	return top
}

func newScan(a *assignment.Assignment, rate []float64, most int) *scan {
	s := &scan{rate: rate, load: make([]float64, a.NumTasks()), least: 1, most: most}
	for slice, r := range a.All() {
		s.width = append(s.width, slice.Fraction())
		var o []uint32
		for j := range r.Len() {
			o = append(o, uint32(r.Position(j)))
		}
		s.owners = append(s.owners, o)
	}
	return s
}

// onlyMoves is a configuration that neither merges nor splits a job with so many
// slices a task.
func onlyMoves(most, slices int) assignment.JobConfig {
	cfg := config(1, most)
	cfg.Balance.MinSlicesPerTask, cfg.Balance.MaxSlicesPerTask = slices, slices
	return cfg
}

// TestPublishedIsThePaper compares phase 4 with a plain reading of the paper.
func TestPublishedIsThePaper(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n, most := 2+rng.IntN(8), 1+rng.IntN(4)
		most = min(most, n)
		var p assignment.Placement
		var rate []float64
		for _, start := range assignment.Equal(30 * n) {
			o := rng.Perm(n)[:1+rng.IntN(most)]
			var owners []uint32
			for _, t := range o {
				owners = append(owners, uint32(t))
			}
			p.Add(start, owners...)
			// Whole shares keep the sums of both exact enough to break ties alike.
			rate = append(rate, float64((1+rng.IntN(999))*840))
		}
		tasks := fleet(n)
		a, err := assignment.Successor(nil, assignment.Header{Job: "job", Generation: 1}, fleet(n), p)
		if err != nil {
			t.Fatal(err)
		}
		out := loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: onlyMoves(most, 30), Published: true, Loads: &loadbalance.Loads{Slice: rate}})
		s := newScan(a, rate, most)
		s.run(.09)
		for i := range s.owners {
			got := slices.Sorted(slices.Values(out.Placement.Range(i)))
			if d := cmp.Diff(slices.Sorted(slices.Values(s.owners[i])), got); d != "" {
				t.Fatalf("seed %d, slice %d: %s", seed, i, d)
			}
		}
	}
}

// round is the whole of section 4.4.1 read off the paper, phase after phase: for
// each step it looks at everything there is and keeps nothing but the loads.
func (s *scan) round(cfg assignment.BalanceConfig) {
	for i, o := range s.owners {
		for _, t := range o {
			s.load[t] += s.rate[i] / float64(len(o))
		}
	}
	s.merge(cfg.MinSlicesPerTask*len(s.load), cfg.MergeBudget)
	clear(s.load)
	s.run(cfg.MoveBudget)
	s.split(cfg.MaxSlicesPerTask * len(s.load))
}

// merge joins the coldest two neighbours, again and again.
func (s *scan) merge(least int, budget float64) {
	total, top := 0.0, 0.0
	for i := range s.rate {
		total += s.rate[i]
	}
	for _, x := range s.load {
		top = max(top, x)
	}
	refused := make(map[[2]float64]bool) // by width and rate of both together
	for len(s.rate) > least {
		best := -1
		for i := range len(s.rate) - 1 {
			both := s.rate[i] + s.rate[i+1]
			if both < total/float64(len(s.rate)) && (best < 0 || both < s.rate[best]+s.rate[best+1]) &&
				!refused[[2]float64{s.width[i] + s.width[i+1], both}] {
				best = i
			}
		}
		if best < 0 {
			return
		}
		keep, lose := best, best+1
		if s.width[keep] < s.width[lose] {
			keep, lose = lose, keep
		}
		share := s.rate[lose] / float64(len(s.owners[keep]))
		cost, fits := 0.0, true
		for _, t := range s.owners[keep] {
			after := s.load[t] + share
			if slices.Contains(s.owners[lose], t) {
				after -= s.rate[lose] / float64(len(s.owners[lose]))
			} else {
				cost = s.width[lose]
			}
			fits = fits && after <= top
		}
		if !fits || cost > budget {
			refused[[2]float64{s.width[best] + s.width[best+1], s.rate[best] + s.rate[best+1]}] = true
			continue
		}
		budget -= cost
		for _, t := range s.owners[lose] {
			s.load[t] -= s.rate[lose] / float64(len(s.owners[lose]))
		}
		for _, t := range s.owners[keep] {
			s.load[t] += share
		}
		s.owners[best] = s.owners[keep]
		s.rate[best] += s.rate[best+1]
		s.width[best] += s.width[best+1]
		s.owners = slices.Delete(s.owners, best+1, best+2)
		s.rate = slices.Delete(s.rate, best+1, best+2)
		s.width = slices.Delete(s.width, best+1, best+2)
	}
}

// split halves the hottest slice while it is twice as hot as the mean one.
func (s *scan) split(most int) {
	for len(s.rate) < most {
		best, total := 0, 0.0
		for i, x := range s.rate {
			total += x
			if x > s.rate[best] {
				best = i
			}
		}
		if s.rate[best]*float64(len(s.rate)) < 2*total {
			return
		}
		s.rate[best] /= 2
		s.width[best] /= 2
		s.rate = slices.Insert(s.rate, best+1, s.rate[best])
		s.width = slices.Insert(s.width, best+1, s.width[best])
		s.owners = slices.Insert(s.owners, best+1, slices.Clone(s.owners[best]))
	}
}

// TestScanRound checks that the peer of the benchmark does what the phases ask for:
// as many slices as the algorithm proper, and about as even a load.
func TestScanRound(t *testing.T) {
	a, tasks, l := uneven(t, 20)
	cfg := config(1, 10)
	out := loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Published: true, Loads: l})
	s := newScan(a, slices.Clone(l.Slice), 10)
	s.round(cfg.Balance)
	top, sum := 0.0, 0.0
	for _, x := range s.load {
		top = max(top, x)
		sum += x
	}
	x, n := top*float64(len(s.load))/sum, len(s.rate)
	t.Logf("scans: imbalance %.3f, %d slices; heaps: %.3f, %d", x, n, out.Stats.ImbalanceAfter, out.Stats.Slices)
	if math.Abs(x-out.Stats.ImbalanceAfter) > .03 || math.Abs(float64(n-out.Stats.Slices)) > .03*float64(n) {
		t.Error("they are not the same work")
	}
}

// BenchmarkLinearScan is a whole round at 100 tasks of 100 slices, and phase 4 of it
// alone, as a plain reading of the paper has it and as it is here.
func BenchmarkLinearScan(b *testing.B) {
	a, tasks, l := uneven(b, 100)
	whole := config(1, 10)
	b.Run("round/paper", func(b *testing.B) {
		for b.Loop() {
			newScan(a, slices.Clone(l.Slice), 10).round(whole.Balance)
		}
	})
	b.Run("round/heaps", func(b *testing.B) {
		for b.Loop() {
			loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: whole, Published: true, Loads: l})
		}
	})
	b.Run("moves/paper", func(b *testing.B) {
		for b.Loop() {
			newScan(a, l.Slice, 10).run(.09)
		}
	})
	b.Run("moves/heaps", func(b *testing.B) {
		for b.Loop() {
			loadbalance.Rebalance(loadbalance.Input{Prev: a, Tasks: tasks, Config: onlyMoves(10, 100), Published: true, Loads: l})
		}
	})
}
