// Package fanout measures what crosses packages when very many subscribers or tasks
// are served: etcd's watches beside the Distributor's streams, and an assigner that
// many Distributors report to.
package fanout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/crowdtest"
)

// BenchmarkFanOutEtcd is the peer of the Distributor's BenchmarkFanOut: the same
// assignment, 1,000 tasks and 10^5 slices of which 1 % move, kept as one value in etcd
// and watched by as many clients, in a process of their own. last-ms is from the put
// until the last of them has it; KiB/sub is what etcd's process grows by.
func BenchmarkFanOutEtcd(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("subscribers=%d", n), func(b *testing.B) { fanOutEtcd(b, n) })
	}
}

func fanOutEtcd(b *testing.B, n int) {
	endpoints := etcdtest.Start(b)
	cl, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cl.Close() })
	rng := rand.New(rand.NewPCG(1, 2))
	a := storetest.First(crowdtest.Job, crowdtest.Store, 1, 1000, 100_000)
	var size int
	put := func() uint64 {
		value, err := wire.EncodeAssignment(a)
		if err != nil {
			b.Fatal(err)
		}
		size = len(value)
		r, err := cl.Put(context.Background(), crowdtest.Key, string(value))
		if err != nil {
			b.Fatal(err)
		}
		return uint64(r.Header.Revision)
	}
	revision := put()
	before := resident()
	crowd := crowdtest.Start(b, crowdtest.Etcd, fmt.Sprintf("%s@%d", endpoints[0], revision), n)
	crowd.Until(b, revision)
	var last time.Duration
	for b.Loop() {
		b.StopTimer()
		a = storetest.Next(a, a.Generation()+1, .01, "x", rng)
		b.StartTimer()
		began := time.Now()
		crowd.Until(b, put())
		last = max(last, time.Since(began))
	}
	b.StopTimer()
	b.ReportMetric(float64(last.Milliseconds()), "last-ms")
	b.ReportMetric(float64(resident()-before)/float64(n)/1024, "KiB/sub")
	b.ReportMetric(float64(size), "whole-B")
}

// resident is the memory of this process, bytes.
func resident() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}
