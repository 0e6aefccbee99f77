package distributor

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/crowdtest"
	"github.com/slicer-project/slicer/test/kit/balanced"
)

// BenchmarkRollout has many subscribers come that hold nothing, raw streams in a process of
// their own, to a Distributor in another: in turns such as read compressed wholes and such as
// do not, which are sent what all were sent before there was compression. The assignment is
// one of 10^5 slices that the balancer made. all-ms is from the start of the crowd until the
// last has the whole, cpu-ms what it costs the Distributor and crowd-cpu-ms what it costs the
// crowd, which decodes nothing (assignment/wire's BenchmarkWhole has what that costs).
// Medians of the rounds; what is reported of the others ends with -plain. It checks itself
// whether the bars are met: a quarter of the bytes, half of the time.
func BenchmarkRollout(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("subscribers=%d", n), func(b *testing.B) { benchmarkRollout(b, n) })
	}
}

func benchmarkRollout(b *testing.B, n int) {
	f, assigner := loopbackAssigner(b)
	a := ofBalancer(b, 100_000)
	whole, err := wire.WholeFrame(a)
	if err != nil {
		b.Fatal(err)
	}
	share := float64(len(whole.Compressed().Data)) / float64(len(whole.Data))
	f.set(a)
	d := startProcess(b, "127.0.0.1:0", assigner, crowdtest.Slicer)
	warm := crowdtest.Start(b, crowdtest.Compressed, d.address, 10)
	warm.Until(b, a.Checksum())
	warm.Stop()
	took, cpu, crowdCPU := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string][]time.Duration{}
	for b.Loop() {
		for _, kind := range []string{crowdtest.Compressed, crowdtest.Slicer} {
			before, _ := d.used()
			began := time.Now()
			crowd := crowdtest.Start(b, kind, d.address, n)
			crowd.Until(b, a.Checksum())
			took[kind] = append(took[kind], time.Since(began))
			after, _ := d.used()
			cpu[kind] = append(cpu[kind], after-before)
			crowdCPU[kind] = append(crowdCPU[kind], crowd.CPU(b))
			crowd.Stop()
			time.Sleep(time.Second) // what is left of its connections ends
		}
	}
	for kind, suffix := range map[string]string{crowdtest.Compressed: "", crowdtest.Slicer: "-plain"} {
		b.ReportMetric(ms(median(took[kind])), "all-ms"+suffix)
		b.ReportMetric(ms(median(cpu[kind])), "cpu-ms"+suffix)
		b.ReportMetric(ms(median(crowdCPU[kind])), "crowd-cpu-ms"+suffix)
	}
	ratio := func(of map[string][]time.Duration) float64 {
		return float64(median(of[crowdtest.Compressed])) / float64(median(of[crowdtest.Slicer]))
	}
	b.ReportMetric(share, "bytes-ratio")
	b.ReportMetric(ratio(took), "time-ratio")
	b.ReportMetric(ratio(cpu), "cpu-ratio")
	for _, p := range []struct {
		what       string
		is, atMost float64
	}{{"bytes", share, .25}, {"time", ratio(took), .5}} {
		verdict := "met"
		if p.is > p.atMost {
			verdict = "NOT MET"
		}
		b.Logf("%s: compressed takes %.3f of the %s, at most %.2f is asked for", verdict, p.is, p.what, p.atMost)
	}
}

func median(of []time.Duration) time.Duration {
	of = slices.Clone(of)
	slices.Sort(of)
	return of[len(of)/2]
}

// ofBalancer is an assignment of the test's job that the balancer made.
func ofBalancer(tb testing.TB, n int) *assignment.Assignment {
	tb.Helper()
	a := balanced.New(tb, n).Assignment()
	h := a.Header()
	h.Job, h.StoreID = testJob, testStore
	var tasks []assignment.Task
	for _, t := range a.Tasks() {
		tasks = append(tasks, t)
	}
	a, err := assignment.New(h, tasks, a.Columns())
	if err != nil {
		tb.Fatal(err)
	}
	return a
}
