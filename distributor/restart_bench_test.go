package distributor

import (
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/crowdtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// BenchmarkRestart restarts a Distributor that has many subscribers, with an
// assignment of 1,000 tasks and 10^5 slices that changes while it is away and once
// more while they come back. It says how long it took, from the new one's start,
// until half of them (p50-ms), 99 % (p99-ms) and the last (all-ms) held what had
// changed while it was away; and how long the change after that took to those who
// were back by then (change-p50-ms, change-p99-ms, change-last-ms) and to everybody
// (change-all-ms). lost is how many streams ended, over subscribers: 1 is each once.
func BenchmarkRestart(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("subscribers=%d", n), func(b *testing.B) { restart(b, n) })
	}
}

func restart(b *testing.B, n int) {
	f, assigner := loopbackAssigner(b)
	first := firstOf(b, testJob, testStore, baseGen, 100_000)
	f.set(first)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := l.Addr().String()
	stop := restarted(b, l, assigner)
	defer func() { stop() }()
	crowd := crowdtest.Start(b, crowdtest.Slicer, address, n)
	crowd.Until(b, first.Checksum())
	var last [3]time.Duration
	var change [4]time.Duration
	for b.Loop() {
		stop()
		away := after(b, first, 1000)
		f.mu.Lock()
		f.past = map[int64]*assignment.Assignment{int64(first.Generation()): first}
		f.mu.Unlock()
		f.set(away)
		time.Sleep(3 * time.Second)
		if l, err = net.Listen("tcp", address); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		stop = restarted(b, l, assigner)
		// The change comes when a good part of them is back.
		for back := 0; back < n/4; {
			time.Sleep(50 * time.Millisecond)
			back, _, _, _ = crowd.Spread(b, away.Checksum(), first.Checksum(), time.Now())
		}
		back, _, _, _ := crowd.Spread(b, away.Checksum(), first.Checksum(), time.Now())
		next := after(b, away, 1000)
		changed := time.Now()
		f.set(next)
		crowd.Until(b, next.Checksum())
		change[3] = max(change[3], time.Since(changed))
		_, last[0], last[1], last[2] = crowd.Spread(b, next.Checksum(), first.Checksum(), began)
		_, p50, p99, end := crowd.Spread(b, next.Checksum(), away.Checksum(), changed)
		change[0], change[1], change[2] = max(change[0], p50), max(change[1], p99), max(change[2], end)
		b.ReportMetric(float64(back)/float64(n), "back-at-change")
		first = next
	}
	for i, unit := range []string{"p50-ms", "p99-ms", "all-ms"} {
		b.ReportMetric(float64(last[i].Milliseconds()), unit)
	}
	for i, unit := range []string{"change-p50-ms", "change-p99-ms", "change-last-ms", "change-all-ms"} {
		b.ReportMetric(float64(change[i].Milliseconds()), unit)
	}
	b.ReportMetric(float64(crowd.Lost(b))/float64(n)/float64(b.N), "lost")
}

// loopbackAssigner is a fake assigner on real sockets.
func loopbackAssigner(b *testing.B) (f *fakeAssigner, address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	f = newFakeAssigner(b, "a1")
	f.pref = &slicerv1.Preference{Revision: 1, Jobs: []*slicerv1.JobPreference{{Job: testJob, AssignerId: "a1"}}}
	s := grpc.NewServer()
	slicerv1.RegisterAssignerServiceServer(s, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(l)
	}()
	b.Cleanup(func() { s.Stop(); <-done })
	return f, l.Addr().String()
}

// restarted runs a Distributor until the returned function is called.
func restarted(b *testing.B, l net.Listener, assigner string) (stop func()) {
	d, err := New(Config{ID: "d1", Assigners: []string{assigner}})
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer(ServerOptions()...)
	d.Register(s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(l)
	}()
	return func() {
		s.Stop()
		<-done
		d.Close()
	}
}
