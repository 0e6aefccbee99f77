package overload

import (
	"context"
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
				l := load{stubs: []hello.GreeterClient{stub}, key: anyKey}
				before := l.offer(1, .5*can, 3*time.Second)
				during := l.offer(1, 10*can, *cell)
				after := l.offer(1, .5*can, 10*time.Second)
				if usual := before[len(before)/2:].sum(0); usual.served < usual.offered*9/10 {
					b.Errorf("void: of half of what the server can do it serves %d of %d", usual.served, usual.offered)
				}
				all := during[len(during)/3:].sum(0)
				could := can * float64(len(during)-len(during)/3) / slots
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(all.refused)/float64(max(all.served, 1)), "refused/served")
				b.ReportMetric(float64(all.served)/could, "served/can")
				b.ReportMetric(after.back(0), "back-s")
			})
		}
	}
}
