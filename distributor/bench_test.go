package distributor

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment/cputest"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/crowdtest"
	"github.com/slicer-project/slicer/distributor/fanout"
)

// BenchmarkFanOut changes 1 % of an assignment of 1,000 tasks and 10^5 slices
// and waits until the last of many subscribers, raw streams in a process of
// their own, has seen the trailer's checksum. Limits at 10,000: last-ms 1000 (ns/op
// is the mean), KiB/sub 64 (what the Distributor's process grows by, buffers of its
// kernel apart), encodes/gen 1, %-of-whole 2 (bytes sent to one subscriber for one
// change). cpu-ms and crowd-cpu-ms are what one change costs the Distributor and all
// subscribers, which says more than last-ms on a machine that is busy. The same
// through etcd's watches is measured in test/bench/fanout.
func BenchmarkFanOut(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("subscribers=%d", n), func(b *testing.B) { fanOut(b, n) })
	}
}

func fanOut(b *testing.B, n int) {
	reg := prometheus.NewRegistry()
	_, f, address := loopback(b, Config{Registerer: reg})
	a := firstOf(b, testJob, testStore, baseGen, 100_000)
	f.set(a)
	before := resident()
	crowd := crowdtest.Start(b, crowdtest.Slicer, address, n)
	crowd.Until(b, a.Checksum())
	perSub := float64(resident()-before) / float64(n) / 1024
	sent := value(b, reg, "slicer_distributor_update_bytes_total", fanout.KindDelta)
	encodes := value(b, reg, "slicer_distributor_encodes_total", fanout.KindDelta)
	var last, own, theirs time.Duration
	for b.Loop() {
		b.StopTimer()
		next := after(b, a, 1000)
		cpu, crowdCPU := cputest.Own(), crowd.CPU(b)
		b.StartTimer()
		began := time.Now()
		f.set(next)
		crowd.Until(b, next.Checksum())
		last = max(last, time.Since(began))
		b.StopTimer()
		for value(b, reg, "slicer_distributor_subscribers_behind", "") > 0 {
			time.Sleep(10 * time.Millisecond) // until all have acknowledged
		}
		own, theirs = own+cputest.Own()-cpu, theirs+crowd.CPU(b)-crowdCPU
		b.StartTimer()
		a = next
	}
	b.StopTimer()
	whole, err := wire.EncodeAssignment(a)
	if err != nil {
		b.Fatal(err)
	}
	sent = value(b, reg, "slicer_distributor_update_bytes_total", fanout.KindDelta) - sent
	b.ReportMetric(100*sent/float64(n)/float64(b.N)/float64(len(whole)), "%-of-whole")
	b.ReportMetric(float64(len(whole)), "whole-B")
	b.ReportMetric(float64(last.Milliseconds()), "last-ms")
	b.ReportMetric(float64(own.Milliseconds())/float64(b.N), "cpu-ms")
	b.ReportMetric(float64(theirs.Milliseconds())/float64(b.N), "crowd-cpu-ms")
	b.ReportMetric(perSub, "KiB/sub")
	b.ReportMetric(float64(resident()-before)/float64(n)/1024, "KiB/sub-after")
	b.ReportMetric(1000, "last-ms-limit")
	b.ReportMetric(64, "KiB/sub-limit")
	b.ReportMetric((value(b, reg, "slicer_distributor_encodes_total", fanout.KindDelta)-encodes)/float64(b.N), "encodes/gen")
}

// resident is the memory of this process, bytes.
func resident() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}
