package slicelet

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/serve"
	"github.com/slicer-project/slicer/slicelet/internal/admission"
)

// benchSlicelet owns 100 of 10,000 slices; keys are of 16 bytes and all its own,
// with a Zipf-like popularity.
func benchSlicelet(b *testing.B, mode assignment.Mode) (*Slicelet, []string) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := &Slicelet{meter: newMeter(), me: me, log: slog.New(slog.DiscardHandler)}
	tasks := []assignment.Task{
		{Name: "me", Incarnation: 1, Address: "me:1", Weight: 1},
		{Name: "other", Incarnation: 1, Address: "other:1", Index: 1, Weight: 1},
	}
	owners := make([]uint32, 10_000)
	for i := range owners {
		owners[i] = uint32(min(i%100, 1))
	}
	a, err := assignment.Successor(nil, assignment.Header{Job: "job", StoreID: 1, Generation: 1}, tasks,
		assignment.Placement{Starts: assignment.Equal(len(owners)), Owners: owners})
	if err != nil {
		b.Fatal(err)
	}
	s.recorder = newRecorder(s.meter, admission.New(admission.Config{}), processCPU, time.Now())
	s.newest = stateOf(a)
	s.newest.Status.Mode = mode
	s.view.Store(emptyView())
	s.lookLocked()
	if mode == assignment.Consistent {
		benchLease(b, s, a)
	}
	var own []string
	for len(own) < 10_000 {
		if k := fmt.Sprintf("user/%011d", rng.Int64N(1e11)); s.IsAffinitized(k) {
			own = append(own, k)
		}
	}
	zipf := rand.NewZipf(rng, 1.1, 1, uint64(len(own)-1))
	keys := make([]string, 1<<14)
	for i := range keys {
		keys[i] = own[zipf.Uint64()]
	}
	return s, keys
}

// benchLease has the slicelet believe in the assignment, under a real lease that is
// renewed meanwhile.
func benchLease(b *testing.B, s *Slicelet, a *assignment.Assignment) {
	store, err := serve.Open(b.Context(), serve.Config{Storage: &storage{}})
	if err != nil {
		b.Fatal(err)
	}
	w, err := store.OpenWriter(b.Context(), lease.MaxTTL)
	if err != nil {
		b.Fatal(err)
	}
	token, err := w.Lead(b.Context(), "job")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := lease.Advance(b.Context(), w, lease.Change{Job: "job", Token: token, Wanted: a.Generation()}); err != nil {
		b.Fatal(err)
	}
	reader, err := lease.NewReader(lease.Config{Readers: store, TTL: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	believes := make(chan struct{}, 2)
	_, err = reader.Join(lease.JobConfig{Job: "job", Task: me.Name, Incarnation: me.Incarnation,
		Fetch:   func(context.Context, assignment.Generation) (*assignment.Assignment, error) { return a, nil },
		Changed: func(bf *lease.Belief) { s.believed(bf); believes <- struct{}{} }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { reader.Close(); store.Close() })
	<-believes
}

// modes runs a benchmark in both modes.
func modes(b *testing.B, f func(b *testing.B, s *Slicelet, keys []string)) {
	for _, mode := range []assignment.Mode{assignment.Affinity, assignment.Consistent} {
		b.Run("mode="+mode.String(), func(b *testing.B) {
			s, keys := benchSlicelet(b, mode)
			f(b, s, keys)
		})
	}
}

// BenchmarkClock is what reading CLOCK_BOOTTIME costs, a part of each of the
// others in consistent mode. Beside it stand time.Now, of which it is made, and a
// system call that asks for nothing.
func BenchmarkClock(b *testing.B) {
	var now time.Time
	b.Run("floor=now", func(b *testing.B) { on(b, 1, func(int) { now = time.Now() }) })
	b.Run("floor=call", func(b *testing.B) { on(b, 1, func(int) { syscall.Getppid() }) })
	spread(b, func(int) { lease.Boottime() })
	_ = now
}

// spread runs f on 1, 2, 8, 16 and 64 goroutines.
func spread(b *testing.B, f func(i int)) {
	for _, n := range []int{1, 2, 8, 16, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", n), func(b *testing.B) { on(b, n, f) })
	}
}

// on runs f on n goroutines. cpu-ns/op is the CPU time of all cores together, which
// other programs on the machine disturb less than the wall time.
func on(b *testing.B, n int, f func(i int)) {
	b.ReportAllocs()
	before, _ := processCPU()
	var wg sync.WaitGroup
	for g := range n {
		from, to := b.N*g/n, b.N*(g+1)/n
		wg.Go(func() {
			for i := from; i < to; i++ {
				f(i)
			}
		})
	}
	wg.Wait()
	after, _ := processCPU()
	b.ReportMetric(float64((after-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

func BenchmarkIsAffinitized(b *testing.B) {
	modes(b, func(b *testing.B, s *Slicelet, keys []string) {
		spread(b, func(i int) {
			if !s.IsAffinitized(keys[i&(1<<14-1)]) {
				b.Error("not owned")
			}
		})
	})
}

func BenchmarkHandle(b *testing.B) {
	modes(b, func(b *testing.B, s *Slicelet, keys []string) {
		spread(b, func(i int) {
			if !s.Handle(keys[i&(1<<14-1)]).Owned() {
				b.Error("not owned")
			}
		})
	})
}

func BenchmarkAssignedContinuously(b *testing.B) {
	modes(b, func(b *testing.B, s *Slicelet, keys []string) {
		handles := make([]Handle, len(keys))
		for i, k := range keys {
			handles[i] = s.Handle(k)
		}
		spread(b, func(i int) {
			if !handles[i&(1<<14-1)].AssignedContinuously() {
				b.Error("not valid")
			}
		})
	})
}

// BenchmarkMetering is what counting a request costs of a Handle. Beside it stand,
// to judge it by on a slow machine: what the benchmark itself takes, which is part of
// each figure, an atomic addition, of which taking and releasing a stripe's lock are
// two, and a look at the clock, of which there is none.
func BenchmarkMetering(b *testing.B) {
	var n atomic.Uint64
	var now time.Time
	b.Run("floor=add", func(b *testing.B) { on(b, 1, func(int) { n.Add(1) }) })
	b.Run("floor=now", func(b *testing.B) { on(b, 1, func(int) { now = time.Now() }) })
	s, keys := benchSlicelet(b, assignment.Affinity)
	own := s.view.Load().own
	ks, at := make([]assignment.SliceKey, len(keys)), make([]int, len(keys))
	for i, k := range keys {
		ks[i] = assignment.KeyOf(k)
		at[i] = own.find(ks[i])
	}
	var sum assignment.SliceKey
	b.Run("floor=loop", func(b *testing.B) {
		on(b, 1, func(i int) {
			i &= 1<<14 - 1
			sum += ks[i] + assignment.SliceKey(at[i])
		})
	})
	spread(b, func(i int) {
		i &= 1<<14 - 1
		s.meter.request(ks[i], own, at[i], true)
	})
	_, _ = now, sum
}

// BenchmarkMeasure is what a report costs, once a second.
func BenchmarkMeasure(b *testing.B) {
	s, keys := benchSlicelet(b, assignment.Affinity)
	now := time.Now()
	for b.Loop() {
		for _, k := range keys[:1000] {
			s.Handle(k)
		}
		now = now.Add(time.Second)
		s.recorder.measure(assignment.LoadRequests, now)
	}
}
