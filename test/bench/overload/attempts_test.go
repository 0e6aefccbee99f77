package overload

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/onecore"
)

// BenchmarkAttempts offers four tasks that own all keys three times what they can do, and says
// how often a request is sent: of servers of our own, which have clients hold requests back, less
// than once; of tasks whose handlers refuse what has to wait for longer than 100 ms, and of tasks
// whose servers do that and do not know Slicer, 1.10 times at most. Beside it, a client of gRPC's
// that takes turns among such servers, and sends what they refuse three times. Handlers that refuse
// wait 10 ms on average for each request and do not compute; the others take 2 ms of CPU time.
//
//	go test ./test/bench/overload -run '^$' -bench Attempts -benchtime 1x -phase 10s -rounds 3
func BenchmarkAttempts(b *testing.B) {
	onecore.Apart(b)
	plane := bed.Start(b, bed.Config{})
	const n, takes, waits = 4, 2 * time.Millisecond, 10 * time.Millisecond
	handlers := spec{Waits: waits, Most: 100 * time.Millisecond}
	most, ours := 1.10, .99
	if *phase < overload.RetryWindow {
		// Retries for which there were requests before may come in a short phase, and clients hold
		// back what they have heard of only.
		most, ours = 1.2, 1.2
	}
	kinds := []struct {
		name      string
		spec      spec
		admission assignment.Admission // none: no job
		times     int
		most      float64 // 0: what is seen is said, and no more
	}{
		{"ours", spec{Burns: takes}, assignment.AdmissionOn, 1, ours},
		{"handlers", handlers, assignment.AdmissionReport, 1, most},
		{"stock", spec{Waits: handlers.Waits, Most: handlers.Most, Member: true}, assignment.AdmissionReport, 1, most},
		{"blind", handlers, 0, 3, 0},
	}
	all := make([]measured, len(kinds))
	for round := range *rounds {
		for i, k := range kinds {
			b.Run("servers="+k.name, func(b *testing.B) {
				var conns []*grpc.ClientConn
				sent := new(wire)
				f := startFleet(b, n, k.spec, plane, assignment.JobConfig{Name: fmt.Sprint(k.name, "-", round), MinReplicas: n, MaxReplicas: n,
					Balance: assignment.BalanceConfig{Interval: time.Hour}, Overload: assignment.OverloadConfig{Admission: k.admission}})
				for range 8 {
					if k.admission != 0 {
						conns = append(conns, jobConn(b, f.job, plane.Addrs(), grpc.WithStatsHandler(sent)))
					} else {
						conns = append(conns, choosing(b, f.servers, `{"round_robin":{}}`, grpc.WithStatsHandler(sent), grpc.WithDisableRetry(), onecore.Labelled()))
					}
				}
				l := load{stubs: stubsOf(b, conns), key: anyKey, mixed: true, times: k.times}
				can := n / waits.Seconds()
				if k.spec.Burns > 0 {
					can = f.can(b, l, &all[i], takes)
				} else {
					f.calm(b, l, &all[i], .5*can)
				}
				l.offer(uint64(round), 3*can, 2*time.Second) // the first seconds say more of levels than of retries
				used, before := f.using(b, &all[i]), sent.attempts.Load()
				s := l.offer(uint64(round), 3*can, *phase).sum(0)
				if k.spec.Burns > 0 {
					used()
				}
				all[i].add(b, "attempts", float64(sent.attempts.Load()-before)/float64(s.offered))
				all[i].add(b, "served/can", float64(s.served)/(can*phase.Seconds()))
				all[i].add(b, "held", float64(s.held)/float64(s.offered))
				all[i].addLate(b, s)
				f.stop()
			})
		}
	}
	for i, k := range kinds {
		all[i].judge(b, "servers="+k.name, bar{"attempts", 0, k.most})
	}
}
