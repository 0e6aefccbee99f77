package live

import (
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
	medianLimit, paperMedian = 20 * time.Second, 480 * time.Second
	steadyLimit              = .005 // of the keyspace, a minute
)

// BenchmarkReaction is the experiment in full.
func BenchmarkReaction(b *testing.B) {
	for b.Loop() {
		x := startExperiment(b, seedtest.Seed(b), numServers, usualRate)
		x.record(warmUp, nil)
		s := x.shifts(b, 20, time.Minute, nil)
		b.Logf("median %.1f s (limit %.0f s; Slicer paper, Figure 13: %.0f s), %d of %d unrecovered (limit 0), churn %.2f %% of the keyspace a shift, %.3f %% a minute from the recovery on, steady churn %.3f %% a minute (limit of both %g %%)",
			s.median.Seconds(), medianLimit.Seconds(), paperMedian.Seconds(), s.unrecovered, len(s.took), 100*s.reacting, 100*s.since, 100*s.steady, 100*steadyLimit)
		b.Logf("all reactions, in seconds: %.1f", seconds(s.took))
		b.ReportMetric(s.median.Seconds(), "s/median")
		b.ReportMetric(paperMedian.Seconds(), "s/paper")
		b.ReportMetric(float64(s.unrecovered), "unrecovered")
		b.ReportMetric(100*s.reacting, "%churn/shift")
		b.ReportMetric(100*s.steady, "%churn/min")
		if s.unrecovered > 0 || s.median > medianLimit || s.steady > steadyLimit || s.since > steadyLimit {
			b.Error("a limit is missed")
		}
	}
}

func seconds(ds []time.Duration) (all []float64) {
	for _, d := range ds {
		all = append(all, d.Seconds())
	}
	return all
}

// TestReaction is the experiment in short: two shifts, each watched until it has
// recovered. A busy machine has two minutes for it: it sends fewer requests, and the
// fewer there are in a window, the more uneven they are by chance.
func TestReaction(t *testing.T) {
	t.Parallel()
	b := startExperiment(t, seedtest.Seed(t), numServers, usualRate)
	s := b.shifts(t, 2, 2*time.Minute, recovered)
	if s.unrecovered > 0 {
		t.Errorf("%d of %d shifts did not recover", s.unrecovered, len(s.took))
	}
}
