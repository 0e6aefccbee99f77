package sim_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/loadbalance/sim"
)

const (
	weighted  = sim.WeightedMove
	published = sim.Published
)

// setting is what figures are the means over.
type setting struct {
	workloads    []string
	tasks        []int
	replicas     int // max
	seeds        int
	rounds, skip int // rounds to play, and how many of them not to count
	first        int // seed
}

// noisy is the measurement that figures assume.
var noisy = sim.Noise{Slice: .05, Task: .02, Poisson: true}

// play replays every cell of a setting; each gets the result of one seed.
func (s setting) play(tb testing.TB, algorithm string, each func(cell string, r *sim.Result)) {
	tb.Helper()
	for _, w := range s.workloads {
		for _, n := range s.tasks {
			for seed := s.first; seed < s.first+s.seeds; seed++ {
				src, err := sim.Workload{Name: w, Tasks: n, Rounds: s.rounds, Seed: uint64(seed)}.Open()
				if err != nil {
					tb.Fatal(err)
				}
				r, err := sim.Run(sim.Config{Algorithm: algorithm, Tasks: n, MaxReplicas: s.replicas, Noise: noisy, Seed: uint64(seed)}, src)
				if err != nil {
					tb.Fatal(err)
				}
				each(fmt.Sprintf("%s, %d tasks", w, n), r)
			}
		}
	}
}

// means are over all cells, and the post-over-floor of each cell.
func (s setting) means(tb testing.TB, algorithm string) (all sim.Summary, cells map[string]float64) {
	tb.Helper()
	count := 0.0
	cells = make(map[string]float64)
	s.play(tb, algorithm, func(cell string, r *sim.Result) {
		x := sim.Summarize(r.Rounds[s.skip:], r.Tasks)
		all.MeanPostOverFloor += x.MeanPostOverFloor
		all.MeanKeyChurn += x.MeanKeyChurn
		all.MeanLoadChurn += x.MeanLoadChurn
		all.MeanRest += x.MeanRest
		all.MaxSlicesPerTask = max(all.MaxSlicesPerTask, sim.Summarize(r.Rounds, r.Tasks).MaxSlicesPerTask)
		cells[cell] += x.MeanPostOverFloor / float64(s.seeds)
		count++
		for i, round := range r.Rounds {
			if strings.HasPrefix(cell, "d") && i >= 20 && round.KeyChurn > .09 {
				tb.Errorf("%s: round %d of a uniform load moved %g of the keyspace", cell, i, round.KeyChurn)
			}
			if algorithm == weighted && round.KeyChurn > .10+1e-9 {
				tb.Errorf("%s: round %d reassigned %g of the keyspace", cell, i, round.KeyChurn)
			}
		}
	})
	for _, m := range []*float64{&all.MeanPostOverFloor, &all.MeanKeyChurn, &all.MeanLoadChurn, &all.MeanRest} {
		*m /= count
	}
	return all, cells
}

// within asserts a limit of a percentage.
func within(tb testing.TB, what string, got, least, most float64) {
	tb.Helper()
	if !(got >= least && got <= most) {
		tb.Errorf("%s is %.3f %%, want %.3f to %.3f %%", what, 100*got, 100*least, 100*most)
	}
}

// judge compares both algorithms on a setting and asserts what weighted-move
// promises.
func (s setting) judge(tb testing.TB) {
	tb.Helper()
	p, pCells := s.means(tb, published)
	w, wCells := s.means(tb, weighted)
	for _, x := range []struct {
		name string
		s    sim.Summary
	}{{published, p}, {weighted, w}} {
		tb.Logf("R=%-2d %-13s excess %5.2f %%, key churn %.3f %%, load churn %.3f %%, rest %.3f, at most %.0f slices a task",
			s.replicas, x.name, 100*(x.s.MeanPostOverFloor-1), 100*x.s.MeanKeyChurn, 100*x.s.MeanLoadChurn, x.s.MeanRest, x.s.MaxSlicesPerTask)
	}
	for cell, post := range wCells {
		if post > pCells[cell]+.01 {
			tb.Errorf("R=%d, workload %s: post over floor %.4f, published %.4f", s.replicas, cell, post, pCells[cell])
		}
	}
	if w.MaxSlicesPerTask > 150 {
		tb.Errorf("%g slices a task", w.MaxSlicesPerTask)
	}
	if s.replicas > 1 {
		// The reference has 4.9 % and .92 %. Few cells are further from their mean.
		slack := 1.0
		if len(s.tasks) < 4 {
			slack = 2
		}
		within(tb, "published: excess", p.MeanPostOverFloor-1, .049-slack*.015, .049+slack*.015)
		within(tb, "published: key churn", p.MeanKeyChurn, .0092-slack*.0025, .0092+slack*.0025)
		excess, keys, load := .019, .0010, .0030
		if len(s.tasks) < 4 {
			excess, keys, load = .03, .0030, .0055
		}
		within(tb, "excess", w.MeanPostOverFloor-1, 0, excess)
		within(tb, "key churn", w.MeanKeyChurn, 0, keys)
		within(tb, "load churn", w.MeanLoadChurn, 0, load)
		return
	}
	excess, keys := .009, .16
	if len(s.tasks) < 4 {
		excess, keys = .013, .25
	}
	within(tb, "excess", w.MeanPostOverFloor-1, 0, excess)
	within(tb, "key churn, of published's", w.MeanKeyChurn/p.MeanKeyChurn, 0, keys)
	within(tb, "rest", w.MeanRest-1, 0, .15)
}

var figuresOf = flag.String("figures.tasks", "10", "numbers of tasks of TestFigures; .ci/run has 10,50")

// TestFigures is a small version of BenchmarkFigures.
func TestFigures(t *testing.T) {
	var tasks []int
	for _, x := range strings.Split(*figuresOf, ",") {
		n, err := strconv.Atoi(x)
		if err != nil {
			t.Fatal("-figures.tasks: ", err)
		}
		tasks = append(tasks, n)
	}
	for _, r := range []int{10, 1} {
		setting{strings.Split("cdefgh", ""), tasks, r, 1, 60, 20, 0}.judge(t)
	}
}

// BenchmarkFigures is the table of figures that the algorithms are judged by: it
// takes minutes. Run it with -benchtime 1x.
func BenchmarkFigures(b *testing.B) {
	for _, r := range []int{10, 1} {
		b.Run(fmt.Sprintf("replicas=%d", r), func(b *testing.B) {
			for b.Loop() {
				setting{strings.Split("bcdefgh", ""), []int{10, 20, 50, 200}, r, 3, 288, 0, 0}.judge(b)
			}
		})
	}
}

func idle(tb testing.TB, tasks []int, seeds, rounds int) {
	tb.Helper()
	s := setting{[]string{"d"}, tasks, 10, seeds, rounds, 20, 0}
	w, _ := s.means(tb, weighted)
	tb.Logf("idle churn on uniform load: %.4f %%", 100*w.MeanKeyChurn)
	within(tb, "idle churn", w.MeanKeyChurn, 0, .002)
}

func TestIdleChurn(t *testing.T) { idle(t, []int{10, 50}, 1, 60) }

func shifts(tb testing.TB, algorithm string, seeds int) (n, unrecovered int) {
	tb.Helper()
	setting{[]string{"a"}, []int{10}, 10, seeds, 52, 0, 0}.play(tb, algorithm, func(_ string, r *sim.Result) {
		k, u := sim.Shifts(r.Rounds, 1.2)
		n, unrecovered = n+k, unrecovered+u
	})
	tb.Logf("%s: %d of %d shifts never recover to 1.2", algorithm, unrecovered, n)
	return n, unrecovered
}

// TestShifts plays hot keys that move every fourth round, 12 times a seed.
func TestShifts(t *testing.T) {
	if n, u := shifts(t, weighted, 20); n != 240 || u != 0 {
		t.Errorf("%d of %d shifts never recover", u, n)
	}
	n, u := shifts(t, published, 8)
	within(t, "published: unrecovered", float64(u)/float64(n), .3, .5)
}

// BenchmarkTraces is Figure 11 of the Slicer paper on recorded traces: each
// algorithm's load imbalance and churn, with and without redundancy, means over seeds
// with their standard errors in brackets. The environment variable SLICER_TRACES names
// the folder of the traces.
func BenchmarkTraces(b *testing.B) {
	dir := os.Getenv("SLICER_TRACES")
	files, err := filepath.Glob(filepath.Join(dir, "*.csv.gz"))
	if err != nil {
		b.Fatal(err)
	}
	if dir == "" || len(files) == 0 {
		b.Log("SLICER_TRACES names no folder with traces: nothing to measure")
	}
	for b.Loop() {
		for _, f := range files {
			for _, n := range []int{10, 50} {
				for _, r := range []int{10, 1} {
					traces(b, f, n, r)
				}
			}
		}
	}
}

// traceSeeds is over how many seeds of the measurements' noise traces are judged: with hot
// keys that come and go and few requests one seed may be off by several times what sets
// algorithms apart. Of two means the larger is so beyond chance from traceSigma standard
// errors of their difference, seed by seed, on.
const traceSeeds, traceSigma = 8, 5

// traces replays a trace through each algorithm and judges the means over seeds.
func traces(tb testing.TB, file string, n, replicas int) {
	interval := 5 * time.Minute
	if strings.Contains(file, "arc_") {
		interval = 10 * time.Second
	}
	cell := fmt.Sprintf("%s n=%d R=%d", filepath.Base(file), n, replicas)
	over, keys := make(map[string]sample), make(map[string]sample)
	for _, alg := range sim.Algorithms {
		var imb, load sample
		for seed := range uint64(traceSeeds) {
			s := replayed(tb, file, sim.Config{Algorithm: alg, Tasks: n, MaxReplicas: replicas, IntervalMS: interval.Milliseconds(), Noise: sim.DefaultNoise, Seed: seed})
			imb = append(imb, s.MeanImbalance)
			load = append(load, 100*s.MeanLoadChurn)
			over[alg] = append(over[alg], s.MeanOverFloor)
			keys[alg] = append(keys[alg], 100*s.MeanKeyChurn)
		}
		tb.Logf("%-36s %-16s imbalance %s, over floor %s, key churn %s %%, load churn %s %%", cell, alg, imb, over[alg], keys[alg], load)
	}
	for _, alg := range sim.Algorithms {
		if d := over[weighted].minus(over[alg]); d.mean() > traceSigma*d.err() {
			tb.Errorf("%s: over floor %s, %s has %s, %s less", cell, over[weighted], alg, over[alg], d)
		}
	}
	if own, pub := keys[weighted].mean(), keys[published].mean(); own > pub/4 {
		tb.Errorf("%s: key churn %.4f %%, published %.4f %%", cell, own, pub)
	}
}

// replayed sums up the replay of a trace.
func replayed(tb testing.TB, file string, c sim.Config) sim.Summary {
	tb.Helper()
	tr, err := sim.OpenTrace(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer tr.Close()
	src, err := sim.Windows(tr, c.IntervalMS)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := sim.Run(c, src)
	if err != nil {
		tb.Fatal(err)
	}
	return r.Summary
}

// sample is a figure seed by seed.
type sample []float64

func (s sample) mean() float64 {
	sum := 0.0
	for _, x := range s {
		sum += x
	}
	return sum / float64(len(s))
}

// err is the standard error of the mean.
func (s sample) err() float64 {
	m, square := s.mean(), 0.0
	for _, x := range s {
		square += (x - m) * (x - m)
	}
	n := float64(len(s))
	return math.Sqrt(square / (n - 1) / n)
}

func (s sample) minus(o sample) (d sample) {
	for i, x := range s {
		d = append(d, x-o[i])
	}
	return d
}

func (s sample) String() string { return fmt.Sprintf("%.4f (%.4f)", s.mean(), s.err()) }
