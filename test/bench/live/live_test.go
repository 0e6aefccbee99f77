package live

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/seedtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// warmUp is from the first assignment to the first shift: the load meets an
	// assignment that knows nothing of it.
	warmUp = 40 * time.Second
	// What is asked for, and what the paper has.
	medianLimit, paperMedian = 3 * time.Second, 480 * time.Second // of what is decided
	mostLimit                = 5 * time.Second                    // of nine tenths
	steadyLimit              = .005                               // of the keyspace, a minute

	// quiet is for how long the load stays as it is where nothing should happen.
	quiet            = 10 * time.Minute
	generationsLimit = 10
)

// BenchmarkReaction is the experiment in full.
func BenchmarkReaction(b *testing.B) {
	for b.Loop() {
		x := startExperiment(b, seedtest.Seed(b), numServers, usualRate)
		x.record(warmUp, nil)
		s := x.shifts(b, 20, time.Minute, nil)
		b.Logf("decided in the median %.1f s (limit %.0f s), nine tenths %.1f s (limit %.0f s); seen in the median %.1f s (Slicer paper, Figure 13: %.0f s), nine tenths %.1f s; %d of %d unrecovered (limit 0), churn %.2f %% of the keyspace a shift, %.3f %% a minute from the recovery on, steady churn %.3f %% a minute (limit of both %g %%)",
			median(s.decided), medianLimit.Seconds(), most(s.decided), mostLimit.Seconds(), median(s.took), paperMedian.Seconds(), most(s.took), s.unrecovered, len(s.took), 100*s.reacting, 100*s.since, 100*s.steady, 100*steadyLimit)
		b.Logf("all reactions, in seconds: %.1f; decided: %.1f", seconds(s.took), seconds(s.decided))
		b.ReportMetric(median(s.took), "s/median")
		b.ReportMetric(median(s.decided), "s/decided-median")
		b.ReportMetric(most(s.decided), "s/decided-nine-tenths")
		b.ReportMetric(most(s.took), "s/nine-tenths")
		b.ReportMetric(paperMedian.Seconds(), "s/paper")
		b.ReportMetric(float64(s.unrecovered), "unrecovered")
		b.ReportMetric(100*s.reacting, "%churn/shift")
		b.ReportMetric(100*s.steady, "%churn/min")
		if s.unrecovered > 0 || median(s.decided) > medianLimit.Seconds() || most(s.decided) > mostLimit.Seconds() || s.steady > steadyLimit || s.since > steadyLimit {
			b.Error("a limit is missed")
		}
	}
}

// BenchmarkQuiet has servers under load that stays as it is: five, of which it counts the
// generations, and ten that are asked for as much as those of BenchmarkReaction, of which
// it counts the early rounds.
func BenchmarkQuiet(b *testing.B) {
	for _, servers := range []int{5, numServers} {
		b.Run(fmt.Sprintf("servers=%d", servers), func(b *testing.B) {
			for b.Loop() {
				x := startExperiment(b, seedtest.Seed(b), servers, usualRate*float64(servers)/numServers)
				x.record(warmUp, nil)
				generations, early := x.quiet(b, quiet)
				b.ReportMetric(float64(generations), "generations")
				b.ReportMetric(float64(early), "early-rounds")
				if generations > generationsLimit || early > 0 {
					b.Errorf("%d generations (limit %d), %d early rounds (limit 0)", generations, generationsLimit, early)
				}
			}
		})
	}
}

// median is in seconds, of at least one duration.
func median(ds []time.Duration) float64 {
	sorted, n := slices.Sorted(slices.Values(ds)), len(ds)
	return ((sorted[(n-1)/2] + sorted[n/2]) / 2).Seconds()
}

// most is in how many seconds nine tenths are.
func most(ds []time.Duration) float64 {
	return slices.Sorted(slices.Values(ds))[(9*len(ds)+9)/10-1].Seconds()
}

func seconds(ds []time.Duration) (all []float64) {
	for _, d := range ds {
		all = append(all, d.Seconds())
	}
	return all
}

// TestReaction is the experiment in short: one shift, watched until it has
// recovered. A busy machine has two minutes for it: it sends fewer requests, and the
// fewer there are in a window, the more uneven they are by chance.
func TestReaction(t *testing.T) {
	t.Parallel()
	b := startExperiment(t, seedtest.Seed(t), numServers, usualRate)
	s := b.shifts(t, 1, 2*time.Minute, recovered)
	if s.unrecovered > 0 {
		t.Errorf("%d of %d shifts did not recover", s.unrecovered, len(s.took))
	}
}
