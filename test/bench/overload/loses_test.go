package overload

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/onecore"
)

// BenchmarkLoses has ten tasks asked for .8 of what they can do, in requests without a key, and
// takes .7 of its CPU from one of them. It says what share of the requests fails in the phase
// after that: at most .003, and without retries at most .011. Most that fail do in the first
// second, so that a phase of less than 30 s is not judged.
//
//	go test ./test/bench/overload -run '^$' -bench Loses -benchtime 1x -phase 30s -rounds 3
func BenchmarkLoses(b *testing.B) {
	onecore.Apart(b)
	plane := bed.Start(b, bed.Config{})
	const n, takes = 10, time.Millisecond
	kinds := []struct {
		name   string
		budget float64
		most   float64
	}{{"budget", .1, .003}, {"none", assignment.NoRetries, .011}}
	all := make([]measured, len(kinds))
	for round := range *rounds {
		for i, k := range kinds {
			b.Run("retries="+k.name, func(b *testing.B) {
				f := startFleet(b, n, spec{Burns: takes}, plane, assignment.JobConfig{Name: fmt.Sprint(k.name, "-", round), MinReplicas: n, MaxReplicas: n,
					Balance: assignment.BalanceConfig{Interval: time.Hour}, Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOn, RetryBudget: k.budget}})
				if !f.limited {
					b.Skip("no task can lose CPU: test/cluster has slow tasks, simulated")
				}
				var conns []*grpc.ClientConn
				for range 8 {
					conns = append(conns, jobConn(b, f.job, plane.Addrs()))
				}
				l := load{stubs: stubsOf(b, conns), mixed: true}
				can := f.can(b, l, &all[i], takes)
				before := l.offer(uint64(round), .8*can, min(*phase, 10*time.Second)).sum(0)
				f.limit(b, 0, .3)
				lost := l.offer(uint64(round)+1e6, .8*can, *phase)
				after := lost.sum(0)
				b.Logf("served of each second: %v", lost.shares(0))
				all[i].add(b, "failed-before", 1-before.share())
				all[i].add(b, "failed", 1-after.share())
				all[i].add(b, "refused", float64(after.refused)/float64(after.offered))
				all[i].add(b, "held", float64(after.held)/float64(after.offered))
				all[i].addLate(b, after)
				f.limit(b, 0, 1)
				f.can(b, l, &all[i], takes)
				f.stop()
			})
		}
	}
	for i, k := range kinds {
		if *phase < 30*time.Second {
			k.most = 0
		}
		all[i].judge(b, "retries="+k.name, bar{"failed", 0, k.most})
	}
}
