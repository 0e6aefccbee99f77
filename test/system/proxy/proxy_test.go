package proxy

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/test/kit/process"
)

// TestRig: what is compared does the same work, and slicerproxy sends every key to
// its owner.
func TestRig(t *testing.T) {
	r := newRig(t)
	rate(t, r.slicer, 200*time.Millisecond)
	owned, others, keyless, busy := r.stats(t)
	if owned == 0 || others > 0 || keyless > 0 || busy != servers {
		t.Errorf("%d requests to owners, %d to others, %d without a key, %d servers busy", owned, others, keyless, busy)
	}
	rate(t, r.plain, 100*time.Millisecond)
	if _, _, keyless, _ := r.stats(t); keyless == 0 {
		t.Error("the plain proxy does not reach the servers")
	}
}

// BenchmarkProxies reports the requests a second of both, and slicerproxy's as a
// share of the plain one's: the medians of rounds of half a second.
func BenchmarkProxies(b *testing.B) {
	r := newRig(b)
	var slicer, plain, ratio float64
	for b.Loop() {
		slicer, plain, ratio = compare(5, func(s process.Server) float64 { return rate(b, s, time.Second/2) }, r)
	}
	b.ReportMetric(slicer, "slicer-req/s")
	b.ReportMetric(plain, "plain-req/s")
	b.ReportMetric(ratio, "ratio")
	b.ReportMetric(0, "ns/op")
}
