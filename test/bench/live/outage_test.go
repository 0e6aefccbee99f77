package live

import (
	"flag"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/deploy/plot"
)

var svg = flag.String("svg", "", "`directory` to draw the outage into")

// spread is what servers carried, over what they should have: one value a server
// and window, in order.
type spread []float64

// spreadOf takes windows that do not overlap.
func spreadOf(samples []sample) (s spread) {
	every := int(window / sampleEvery)
	for i := every; i < len(samples); i += every {
		sum := 0.
		for j := range samples[i].seen {
			sum += float64(samples[i].seen[j] - samples[i-every].seen[j])
		}
		if sum == 0 {
			continue
		}
		for j := range samples[i].seen {
			s = append(s, float64(samples[i].seen[j]-samples[i-every].seen[j])*float64(len(samples[i].seen))/sum)
		}
	}
	slices.Sort(s)
	return s
}

// quantile is not a number if there is no window: a machine that is too busy may take
// too few samples for one.
func (s spread) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

// uneven is the mean distance from an even share.
func (s spread) uneven() (sum float64) {
	for _, x := range s {
		sum += max(x-1, 1-x) / float64(len(s))
	}
	return sum
}

// uniform is what an assignment that gives each server as much of the keyspace
// would have made of the same keys.
func uniform(load *popularity, servers int) (s spread) {
	carried := make([]float64, servers)
	for rank := range numKeys {
		p := load.cdf[rank]
		if rank > 0 {
			p -= load.cdf[rank-1]
		}
		k := assignment.KeyOf(load.name(rank))
		carried[int(float64(k)/float64(assignment.KeyspaceEnd)*float64(servers))] += p * float64(servers)
	}
	slices.Sort(carried)
	return carried
}

// outage lets the load shift again and again, with the assigner, without it and
// with it once more, and returns what the servers carried in each phase.
func (b *experiment) outage(tb testing.TB, shifts int, between time.Duration) (phases [3]spread) {
	tb.Helper()
	assigner := b.plane.Assigners[0]
	for i := range phases {
		switch i {
		case 1:
			if err := assigner.Stop(); err != nil {
				tb.Fatal(err)
			}
		case 2:
			if err := assigner.Restart(); err != nil {
				tb.Fatal(err)
			}
			b.record(between, nil) // what the outage has left behind is put right
		}
		failed := b.failed()
		var all []sample
		for range shifts {
			b.load.shift()
			all = append(all, b.record(between, nil)...)
		}
		phases[i] = spreadOf(all)
		tb.Logf("%-8s %d windows of servers: load over the even share at most %.2f in half of them, %.2f in 90 %%, %.2f in 99 %%, mean distance %.3f; %d calls failed",
			[]string{"before:", "outage:", "after:"}[i], len(phases[i]), phases[i].quantile(.5), phases[i].quantile(.9), phases[i].quantile(.99), phases[i].uneven(), b.failed()-failed)
		if n := b.failed() - failed; n > 0 {
			tb.Errorf("%d calls failed", n)
		}
	}
	return phases
}

// BenchmarkOutage is Figure 12 of the Slicer paper, with minutes for hours: 20
// servers under skewed load that shifts, the assigner dead for a while and back.
func BenchmarkOutage(b *testing.B) {
	const servers, shifts, between = 20, 6, 40 * time.Second
	for b.Loop() {
		x := startExperiment(b, seedtest.Seed(b), servers, usualRate)
		x.record(warmUp, nil)
		phases := x.outage(b, shifts, between)
		b.ReportMetric(phases[0].uneven(), "uneven-before")
		b.ReportMetric(phases[1].uneven(), "uneven-outage")
		b.ReportMetric(phases[2].uneven(), "uneven-after")
		if *svg == "" {
			continue
		}
		panel := plot.Panel{XLabel: "load of a server over the even share", YLabel: "share of servers and windows", YMax: 1}
		for i, s := range append(phases[:], uniform(x.load, servers)) {
			var xs, ys []float64
			for q := range 1001 {
				xs, ys = append(xs, s.quantile(float64(q)/1000)), append(ys, float64(q)/1000)
			}
			panel.Series = append(panel.Series, plot.Series{Name: []string{"before", "outage", "after", "uniform"}[i], X: xs, Y: ys, Strong: i < 3})
		}
		path := *svg
		if !filepath.IsAbs(path) {
			path = filepath.Join("..", "..", "..", path) // from the top of the repository
		}
		f := plot.Figure{Title: "An assigner outage", Panels: []plot.Panel{panel},
			Notes: []string{"hot keys shift every 40 s; before, while no assigner lives, and after; compare Slicer paper, Figure 12"}}
		if err := f.WriteFile(filepath.Join(path, "figure12-outage.svg")); err != nil {
			b.Fatal(err)
		}
	}
}

// TestOutage is the same in short: without an assigner requests are served all the same.
func TestOutage(t *testing.T) {
	t.Parallel()
	x := startExperiment(t, seedtest.Seed(t), 4, 200)
	x.outage(t, 1, window+sampleEvery)
}
