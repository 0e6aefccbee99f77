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

	"github.com/slicer-project/slicer/assignment"
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

// TestFanOutEtcd is a small one: some watchers see each of some values.
func TestFanOutEtcd(t *testing.T) {
	f := startEtcd(t, 20, 1000)
	for range 3 {
		f.change()
		f.crowd.Until(t, f.put(t))
	}
}

// etcdFanOut is an assignment as one value in etcd, and a crowd that watches it.
type etcdFanOut struct {
	cl    *clientv3.Client
	rng   *rand.Rand
	a     *assignment.Assignment
	size  int // of the value
	grown func() int64
	crowd *crowdtest.Process
}

func startEtcd(b testing.TB, n, slices int) *etcdFanOut {
	endpoints := etcdtest.Start(b)
	cl, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cl.Close() })
	f := &etcdFanOut{cl: cl, rng: rand.New(rand.NewPCG(1, 2)), a: storetest.First(crowdtest.Job, crowdtest.Store, 1, slices/100, slices)}
	revision := f.put(b)
	before := resident()
	f.grown = func() int64 { return resident() - before }
	f.crowd = crowdtest.Start(b, crowdtest.Etcd, fmt.Sprintf("%s@%d", endpoints[0], revision), n)
	f.crowd.Until(b, revision)
	return f
}

// change moves 1 % of the slices.
func (f *etcdFanOut) change() {
	f.a = storetest.Next(f.a, f.a.Generation()+1, .01, "x", f.rng)
}

// put writes the value and returns its revision.
func (f *etcdFanOut) put(b testing.TB) uint64 {
	value, err := wire.EncodeAssignment(f.a)
	if err != nil {
		b.Fatal(err)
	}
	f.size = len(value)
	r, err := f.cl.Put(context.Background(), crowdtest.Key, string(value))
	if err != nil {
		b.Fatal(err)
	}
	return uint64(r.Header.Revision)
}

func fanOutEtcd(b *testing.B, n int) {
	f := startEtcd(b, n, 100_000)
	var last time.Duration
	for b.Loop() {
		b.StopTimer()
		f.change()
		b.StartTimer()
		began := time.Now()
		f.crowd.Until(b, f.put(b))
		last = max(last, time.Since(began))
	}
	b.StopTimer()
	b.ReportMetric(float64(last.Milliseconds()), "last-ms")
	b.ReportMetric(float64(f.grown())/float64(n)/1024, "KiB/sub")
	b.ReportMetric(float64(f.size), "whole-B")
}

// resident is the memory of this process, bytes.
func resident() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}
