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

// BenchmarkRestart kills a Distributor that has many subscribers, raw streams in a
// process of their own, and starts another on the same address. The assignment, of
// 1,000 tasks and 10^5 slices, changes while it is away, and once more when half of
// the subscribers are back.
//
// p50-ms, p99-ms and all-ms are from its start until so many, of those who came back,
// held what had changed while it was away, or what came later. change-p50-ms, change-p99-ms and
// change-last-ms are from the second change until it had reached those who were back
// by then, of which the last is not to wait for longer than change-last-ms-limit. cpu-ms
// and peak-MiB are what the new Distributor has used by the time that all hold the
// last. Of the subscribers, and over their number, sent-away were told to come back
// later, timed-out gave up waiting for a connection, and lost are streams that had been
// served and have ended: 1 is each once; not-back have not come within two minutes.
//
// How=at-once is the same without what spreads them: subscribers try again each 250 ms,
// all at the same time, and the Distributor lets all in and sends to all at once.
func BenchmarkRestart(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		for _, how := range []string{crowdtest.Slicer, crowdtest.AtOnce} {
			b.Run(fmt.Sprintf("subscribers=%d/how=%s", n, how), func(b *testing.B) { restart(b, n, how) })
		}
	}
}

func restart(b *testing.B, n int, how string) {
	f, assigner := loopbackAssigner(b)
	first := firstOf(b, testJob, testStore, baseGen, 100_000)
	f.set(first)
	d := startProcess(b, "127.0.0.1:0", assigner, how)
	crowd := crowdtest.Start(b, how, d.address, n)
	crowd.Until(b, first.Checksum())
	const giveUp = 2 * time.Minute
	for b.Loop() {
		time.Sleep(6 * time.Second) // streams count as steady after 5 s
		before := crowd.Counts(b)
		d.kill()
		away := after(b, first, 1000)
		f.remember(first)
		f.set(away)
		began := time.Now()
		d = startProcess(b, d.address, assigner, how)
		// hold is how many hold what came while it was away or later, or what came last.
		hold := func(sum, or uint64) int {
			n, _, _, _ := crowd.Spread(b, sum, or, first.Checksum(), began)
			return n
		}
		until := func(enough int, sum, or uint64) {
			for hold(sum, or) < enough && time.Since(began) < giveUp {
				time.Sleep(20 * time.Millisecond)
			}
		}
		until(n/2, away.Checksum(), away.Checksum())
		next := after(b, away, 1000)
		f.remember(away)
		changed := time.Now()
		f.set(next)
		until(n, next.Checksum(), next.Checksum())
		ms := func(unit string, d time.Duration) { b.ReportMetric(float64(d.Milliseconds()), unit) }
		_, p50, p99, last := crowd.Spread(b, away.Checksum(), next.Checksum(), first.Checksum(), began)
		ms("p50-ms", p50)
		ms("p99-ms", p99)
		ms("all-ms", last)
		_, p50, p99, last = crowd.Spread(b, next.Checksum(), next.Checksum(), away.Checksum(), changed)
		ms("change-p50-ms", p50)
		ms("change-p99-ms", p99)
		ms("change-last-ms", last)
		ms("change-last-ms-limit", time.Second)
		cpu, peak := d.used()
		ms("cpu-ms", cpu)
		b.ReportMetric(peak, "peak-MiB")
		now, of := crowd.Counts(b), float64(n)
		b.ReportMetric(float64(n-hold(next.Checksum(), next.Checksum()))/of, "not-back")
		b.ReportMetric(float64(now.Lost-before.Lost)/of, "lost")
		b.ReportMetric(float64(now.SentAway-before.SentAway)/of, "sent-away")
		b.ReportMetric(float64(now.TimedOut-before.TimedOut)/of, "timed-out")
		first = next
	}
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

// remember has the assigner answer those who ask for an older assignment.
func (f *fakeAssigner) remember(a *assignment.Assignment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.past == nil {
		f.past = make(map[int64]*assignment.Assignment)
	}
	f.past[int64(a.Generation())] = a
}
