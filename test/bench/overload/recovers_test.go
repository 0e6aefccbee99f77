package overload

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/onecore"
)

var rare = flag.Int("recovers.rare", 2000, "BenchmarkRecovers: how many clients ask rarely")

// BenchmarkRecovers offers a server five times what it can do for a phase, and then
// half of what it can do, and says after what time 98 % of each second's requests are served, and
// of those after that, what share: of clients that do not know Slicer and of those that link the
// library, two seconds at most, and of 2,000 of the latter, each of which asks rarely, ten; also
// where clients send a request three times that is not served, whatever the answer. Beside it, a
// server without admission. After a phase of less than 10 s six seconds are enough.
//
//	go test ./test/bench/overload -run '^$' -bench Recovers -benchtime 1x -phase 30s
func BenchmarkRecovers(b *testing.B) {
	onecore.Apart(b)
	plane := bed.Start(b, bed.Config{})
	const ms2, ms5 = 2 * time.Millisecond, 5 * time.Millisecond // rare clients take much of the load's core
	kinds := []struct {
		name    string
		takes   time.Duration
		clients int // that link the library; 0: such as do not know Slicer
		times   int
		most    float64 // seconds; 0: there is no admission, and what is seen is said and no more
	}{
		{"linked", ms2, 8, 1, 2}, {"linked-thrice", ms2, 8, 3, 2}, {"stock", ms2, 0, 1, 2}, {"stock-thrice", ms2, 0, 3, 2},
		{"rare", ms5, *rare, 1, 10}, {"rare-thrice", ms5, *rare, 3, 10}, {"nothing-thrice", ms2, 0, 3, 0},
	}
	all := make([]measured, len(kinds))
	for round := range *rounds {
		for i, k := range kinds {
			b.Run("clients="+k.name, func(b *testing.B) {
				job := assignment.JobConfig{Name: fmt.Sprint(k.name, "-", round)}
				if k.most > 0 {
					job.Overload.Admission = assignment.AdmissionOn
				}
				f := startFleet(b, 1, spec{Burns: k.takes}, plane, job)
				var conns []*grpc.ClientConn
				for range max(k.clients, 8) {
					if k.clients > 0 {
						conns = append(conns, jobConn(b, f.job, plane.Addrs()))
					} else {
						conns = append(conns, f.servers[0].plainConn(b, onecore.Labelled()))
					}
				}
				l := load{stubs: stubsOf(b, conns), key: anyKey, mixed: true, times: k.times}
				connect(b, l.stubs)
				can, used := f.can(b, l, &all[i], k.takes), f.using(b, &all[i])
				during := l.offer(uint64(round), 5*can, *phase).sum(0)
				used()
				after := l.offer(uint64(round), .5*can, max(6*time.Second, min(*phase, 15*time.Second)))
				b.Logf("served of each second: %v", after.shares(0))
				back := after.back(0)
				all[i].add(b, "back-s", back)
				all[i].add(b, "served-then", after[min(int(back*slots), len(after)):].sum(0).share())
				all[i].add(b, "served-during", float64(during.served)/(can*phase.Seconds()))
				all[i].add(b, "held-during", float64(during.held)/float64(during.offered))
				all[i].addLate(b, after.sum(0))
				f.stop()
			})
		}
	}
	for i, k := range kinds {
		then := min(k.most, .98)
		if *phase < 10*time.Second && k.most > 0 {
			k.most, then = 6, 0
		}
		all[i].judge(b, "clients="+k.name, bar{"back-s", 0, k.most}, bar{"served-then", then, 0})
	}
}

// connect has each ask once, 64 at a time.
func connect(b *testing.B, stubs []hello.GreeterClient) {
	b.Helper()
	var wg sync.WaitGroup
	turn := make(chan struct{}, 64)
	for _, stub := range stubs {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			ctx, cancel := context.WithTimeout(clerk.WithKey(b.Context(), "first"), time.Minute)
			defer cancel()
			_, err := stub.SayHello(ctx, wrapperspb.String(""), grpc.WaitForReady(true))
			if err != nil && status.Code(err) != codes.ResourceExhausted { // of so many some find no room, and are connected
				b.Error(err)
			}
		})
	}
	wg.Wait()
}
