package leases

import (
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/lease"
)

// BenchmarkRecall measures how long a recall takes, directly and by way of a front, in turns.
func BenchmarkRecall(b *testing.B) {
	const readers = 50
	n := newBed(b)
	st := n.open()
	n.startFront()
	own := newCrowd(b, "direct", st, readers, *ttl, func() (lease.Readers, func()) {
		own := n.open()
		return own, func() {}
	})
	fronted := newCrowd(b, "fronted", st, readers, *ttl, n.remote)
	var took [2][]time.Duration
	for range *changes {
		took[0] = append(took[0], own.advance())
		took[1] = append(took[1], fronted.advance())
	}
	for i, name := range []string{"direct", "front"} {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Microseconds())/1000, "ms-median-"+name)
		b.ReportMetric(float64(took[i][len(took[i])*9/10].Microseconds())/1000, "ms-p90-"+name)
	}
	b.ReportMetric(float64(took[1][len(took[1])/2])/float64(took[0][len(took[0])/2]), "front/direct")
	b.ReportMetric(0, "ns/op")
	own.end()
	fronted.end()
}
