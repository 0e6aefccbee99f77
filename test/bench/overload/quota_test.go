package overload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// spender is a customer, what it asks for and what of that is served.
type spender struct {
	name        string
	limit       float64 // requests a second, 0 for none
	asks        float64
	tasks       int // that it asks
	sent, given [200]atomic.Int64
	failed      atomic.Int64 // otherwise than for want of quota
}

// served is what it got a second, and of what it asked for, between two seconds.
func (s *spender) served(from, to int) (rate, share float64) {
	sent, given := 0., 0.
	for i := from; i < to; i++ {
		sent += float64(s.sent[i].Load())
		given += float64(s.given[i].Load())
	}
	return given / float64(to-from), given / max(sent, 1)
}

// BenchmarkQuota has three customers ask ten tasks of a job, with two Distributors: flood for
// ten times its limit, small for half of its own at two of the tasks, and mail, which has no
// limit. It prints what they get, of their limits or of what they ask for, from the third
// second on, after a Distributor has died, and then the assigner.
func BenchmarkQuota(b *testing.B) {
	for range b.N {
		quota(b)
	}
	b.ReportMetric(0, "ns/op")
}

func quota(b *testing.B) {
	plane := bed.Start(b, bed.Config{Distributors: 2})
	cfg := assignment.JobConfig{Name: "job"}
	var err error
	if cfg.Limits, err = assignment.LimitsOf(assignment.Limit{}, map[string]assignment.Limit{"flood": {Rate: 60}, "small": {Rate: 15}}); err != nil {
		b.Fatal(err)
	}
	if err := plane.PutJob(b.Context(), cfg.WithDefaults()); err != nil {
		b.Fatal(err)
	}
	var stubs []hello.GreeterClient
	for i := range 10 {
		lis := bed.Listen(b)
		s, err := slicelet.New(slicelet.Config{Job: "job", Task: fmt.Sprint("task-", i), Address: lis.Addr().String(), Distributors: plane.Addrs(), Customer: slicelet.BelieveCustomer})
		if err != nil {
			b.Fatal(err)
		}
		bed.Serve(b, lis, func(r grpc.ServiceRegistrar) { hello.RegisterGreeterServer(r, hello.Greeter{}) }, s.Close, sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{})...)
		conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		bed.CloseAtEnd(b, conn.Close)
		stubs = append(stubs, hello.NewGreeterClient(conn))
		ready, cancel := context.WithTimeout(b.Context(), 10*time.Second)
		if err := s.Ready(ready); err != nil {
			b.Fatal(err)
		}
		cancel()
	}
	all := []*spender{{name: "flood", limit: 60, asks: 600, tasks: 10}, {name: "small", limit: 15, asks: 7, tasks: 2}, {name: "mail", asks: 50, tasks: 10}}
	asking, stop := context.WithCancel(b.Context())
	defer stop()
	began := time.Now()
	var clients, calls sync.WaitGroup
	for _, s := range all {
		ctx := metadata.AppendToOutgoingContext(asking, sliceletgrpc.CustomerHeader, s.name)
		r := rand.New(rand.NewPCG(uint64(len(s.name)), 1))
		clients.Go(func() {
			next := began
			for {
				next = next.Add(time.Duration(r.ExpFloat64() / s.asks * float64(time.Second)))
				time.Sleep(time.Until(next))
				if asking.Err() != nil {
					return
				}
				stub, second := stubs[r.IntN(s.tasks)], int(next.Sub(began).Seconds())
				calls.Go(func() {
					ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
					defer cancel()
					_, err := stub.SayHello(ctx, wrapperspb.String("x"))
					switch s.sent[second].Add(1); {
					case err == nil:
						s.given[second].Add(1)
					case status.Code(err) != codes.ResourceExhausted && asking.Err() == nil:
						s.failed.Add(1)
						b.Error(err)
					}
				})
			}
		})
	}
	for _, phase := range []struct {
		name     string
		from, to int // seconds
		before   func() error
	}{
		{"settled", 3, 23, nil},
		{"one-distributor", 26, 46, plane.Distributors[1].Stop}, // its tasks find the other
		{"no-assigner", 46, 66, plane.Assigners[0].Stop},
	} {
		if phase.before != nil {
			if err := phase.before(); err != nil {
				b.Fatal(err)
			}
		}
		time.Sleep(time.Until(began.Add(time.Duration(phase.to) * time.Second)))
		flood, _ := all[0].served(phase.from, phase.to)
		_, small := all[1].served(phase.from, phase.to)
		_, mail := all[2].served(phase.from, phase.to)
		b.ReportMetric(flood/all[0].limit, phase.name+"-flood/limit")
		b.ReportMetric(small, phase.name+"-small/asked")
		b.ReportMetric(mail, phase.name+"-mail/asked")
	}
	stop()
	clients.Wait()
	calls.Wait()
}
