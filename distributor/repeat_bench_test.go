package distributor

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/cputest"
	"github.com/slicer-project/slicer/distributor/crowdtest"
	"github.com/slicer-project/slicer/distributor/fanout"
)

// BenchmarkRepeat lets ten thousand subscribers be idle and says what it costs that
// they hear from the Distributor all the same: CPU time of this process, system
// calls included.
func BenchmarkRepeat(b *testing.B) {
	const subscribers, watched = 10_000, 20 * time.Second
	_, f, address := loopback(b, Config{})
	a := firstOf(b, testJob, testStore, baseGen, 1000)
	f.set(a)
	crowdtest.Start(b, crowdtest.Slicer, address, subscribers).Until(b, a.Checksum())
	for b.Loop() {
		before, began := cputest.Own(), time.Now()
		time.Sleep(watched)
		used, took := cputest.Own()-before, time.Since(began)
		said := float64(subscribers) * took.Seconds() / fanout.RepeatInterval.Seconds()
		b.ReportMetric(float64(used.Microseconds())/said, "us/repeat")
		b.ReportMetric(100*used.Seconds()/took.Seconds(), "%cpu")
	}
}
