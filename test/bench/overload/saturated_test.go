package overload

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/onecore"
)

// BenchmarkSaturated has one key ask for what two of four tasks can do, and others for what .9 of
// all can, so that all are saturated and CPU time says nothing of what they are asked for, by which
// load is balanced all the same. It says after what time .95 of the key's critical requests are
// served of each second, and what share from the 30th second on, where the bar is .95. A phase of less
// than that says nothing. (Ten tasks, of which test/cluster has BenchmarkSaturated, would have a
// fourteenth of a core each: what a process does besides takes so much of that that most of what is
// lost is let in and late.)
//
//	go test ./test/bench/overload -run '^$' -bench Saturated -benchtime 1x -phase 60s
func BenchmarkSaturated(b *testing.B) {
	onecore.Apart(b)
	plane := bed.Start(b, bed.Config{})
	const n, takes, within = 4, time.Millisecond, 30
	var all measured
	for round := range *rounds {
		b.Run("turn", func(b *testing.B) {
			f := startFleet(b, n, spec{Burns: takes}, plane, assignment.JobConfig{Name: fmt.Sprint("job-", round), LoadMetric: assignment.LoadCPU,
				Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOn}})
			var conns []*grpc.ClientConn
			for range 8 {
				conns = append(conns, jobConn(b, f.job, plane.Addrs()))
			}
			hot := load{stubs: stubsOf(b, conns), key: func(*rand.Rand) string { return "the hot key" }, mixed: true}
			others := hot
			others.key = anyKey
			can := f.can(b, others, &all, takes)
			rest, used := make(chan outcome, 1), f.using(b, &all)
			go func() { rest <- others.offer(uint64(round), .9*can, *phase) }()
			got := hot.offer(uint64(round)+1e6, .5*can, *phase)
			beside := <-rest
			used()
			all.add(b, "others-critical", beside.sum(overload.Critical).share())
			for _, x := range []overload.Criticality{overload.Sheddable, overload.Critical} {
				h, o := got.sum(x), beside.sum(x)
				b.Logf("%s and above: the key asked %d served %d refused %d held %d, others asked %d served %d refused %d held %d, of what can be %.2f", x, h.offered, h.served, h.refused, h.held,
					o.offered, o.served, o.refused, o.held, float64(h.served+o.served)/(can*phase.Seconds()))
			}
			b.Logf("critical served of each second: %v", got.shares(overload.Critical))
			all.addLate(b, got.sum(0))
			if len(got) > within*slots {
				all.add(b, "reached-s", got.reaches(overload.Critical, .95))
				all.add(b, "critical-from-30s", got[within*slots:].sum(overload.Critical).share())
			}
			f.can(b, others, &all, takes)
			f.stop()
		})
	}
	all.judge(b, "saturated", bar{"critical-from-30s", .95, 0}, bar{"reached-s", 0, within})
}
