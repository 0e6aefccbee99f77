package overload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// slot is what became of the requests of a part of a second.
type slot struct{ offered, served, refused, held int }

// pool is a server whose requests wait for something else than its CPU, and that refuses what
// comes while as many are under way as there is room for.
type pool struct {
	hello.UnaryGreeterServer
	room  chan struct{}
	takes time.Duration
}

func (p *pool) SayHello(_ context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	select {
	case p.room <- struct{}{}:
		defer func() { <-p.room }()
		time.Sleep(p.takes)
		return in, nil
	default:
		return nil, status.Error(codes.ResourceExhausted, "too many are under way")
	}
}

// BenchmarkStock floods a gRPC server that does not know Slicer, whose requests wait 40 ms, and
// which refuses beyond 16 under way, with ten times what it can do, and then offers half of that:
// from a stock client, and from one that links the library, in turns. It says how many requests
// the server refuses for each that it serves in time, how many it serves of what it can do, and
// after what time from the end of the flood 98 in 100 are served.
//
//	go test ./test/bench/overload -run '^$' -bench Stock -benchtime 1x -turns 5
func BenchmarkStock(b *testing.B) {
	plane := bed.Start(b, bed.Config{})
	if err := plane.PutJob(b.Context(), assignment.JobConfig{Name: "stock"}.WithDefaults()); err != nil {
		b.Fatal(err)
	}
	const takes, room = 40 * time.Millisecond, 16
	lis := bed.Listen(b)
	// It is a member of the job, and no more.
	s, err := slicelet.New(slicelet.Config{Job: "stock", Task: "pool", Address: lis.Addr().String(), Distributors: plane.Addrs()})
	if err != nil {
		b.Fatal(err)
	}
	bed.Serve(b, lis, func(r grpc.ServiceRegistrar) {
		hello.RegisterGreeterServer(r, &pool{room: make(chan struct{}, room), takes: takes})
	}, s.Close)
	for range *turns {
		for _, client := range []string{"stock", "linked"} {
			b.Run("client="+client, func(b *testing.B) {
				target, opts := lis.Addr().String(), []grpc.DialOption(nil)
				if client == "linked" {
					target, opts = "slicer:///stock", clerkgrpc.DialOptions(clerkgrpc.Config{Clerk: clerk.Config{Distributors: plane.Addrs()}})
				}
				conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())...)
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close()
				stub := hello.NewGreeterClient(conn)
				if _, err := stub.SayHello(clerk.WithKey(b.Context(), "first"), wrapperspb.String("x"), grpc.WaitForReady(true)); err != nil {
					b.Fatal(err)
				}
				can := room / takes.Seconds()
				before := flood(b, stub, .5*can, 3*time.Second)
				during := flood(b, stub, 10*can, *cell)
				after := flood(b, stub, .5*can, 10*time.Second)
				if usual := sum(before[len(before)/2:]); usual.served < usual.offered*9/10 {
					b.Errorf("void: of half of what the server can do it serves %d of %d", usual.served, usual.offered)
				}
				all := sum(during[len(during)/3:])
				could := can * float64(len(during)-len(during)/3) / slots
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(all.refused)/float64(max(all.served, 1)), "refused/served")
				b.ReportMetric(float64(all.served)/could, "served/can")
				b.ReportMetric(back(after), "back-s")
			})
		}
	}
}

const slots = 4 // in a second

// flood sends requests for so long, whatever becomes of them.
func flood(b *testing.B, stub hello.GreeterClient, rate float64, lasts time.Duration) []slot {
	b.Helper()
	out := make([]slot, int(lasts.Seconds()*slots)+1)
	var mu sync.Mutex
	var wg sync.WaitGroup
	rng, begin := rand.New(rand.NewPCG(1, 2)), time.Now()
	for at := time.Duration(0); at < lasts; at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second)) {
		if wait := at - time.Since(begin); wait > 0 {
			time.Sleep(wait)
		}
		key := fmt.Sprint(rng.IntN(1000))
		wg.Go(func() {
			ctx, cancel := context.WithDeadline(clerk.WithKey(context.Background(), key), begin.Add(at+500*time.Millisecond))
			defer cancel()
			_, err := stub.SayHello(ctx, wrapperspb.String("x"))
			_, held := clerk.OverloadedFromStatus(err)
			mu.Lock()
			defer mu.Unlock()
			s := &out[int(at.Seconds()*slots)]
			s.offered++
			switch {
			case err == nil:
				s.served++
			case held:
				s.held++
			case status.Code(err) == codes.ResourceExhausted:
				s.refused++
			}
		})
	}
	wg.Wait()
	return out[:len(out)-1]
}

func sum(of []slot) (all slot) {
	for _, s := range of {
		all.offered, all.served, all.refused, all.held = all.offered+s.offered, all.served+s.served, all.refused+s.refused, all.held+s.held
	}
	return all
}

// back is after how many seconds 98 in 100 are served of each second.
func back(of []slot) float64 {
	for i := range of[:len(of)-slots+1] {
		if s := sum(of[i : i+slots]); float64(s.served) >= .98*float64(s.offered) {
			return float64(i) / slots
		}
	}
	return float64(len(of)) / slots
}
