package overload

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/onecore"
)

// BenchmarkRefusal is what refusing an RPC in gRPC's tap costs a server of CPU time, of what
// serving an empty one costs a server with admission, .75 of which is the limit, and one of gRPC
// alone. 64 callers on 8 connections ask without pause, in turns.
//
//	go test ./test/bench/overload -run '^$' -bench Refusal -benchtime 1x -phase 4s -rounds 7
func BenchmarkRefusal(b *testing.B) {
	onecore.Apart(b)
	plane := bed.Start(b, bed.Config{})
	cfg := assignment.JobConfig{Name: "job", Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOn}}
	if err := plane.PutJob(b.Context(), cfg.WithDefaults()); err != nil {
		b.Fatal(err)
	}
	servers := []struct {
		name string
		want codes.Code
		*child
		stubs []hello.GreeterClient
	}{
		{name: "plain", child: spec{}.start(b)},
		{name: "served", child: spec{Job: "job", Task: "served", Distributor: plane.Addrs()[0]}.start(b)},
		{name: "refused", child: spec{Job: "job", Task: "refused", Distributor: plane.Addrs()[0], Full: true}.start(b), want: codes.Unavailable},
	}
	for i := range servers {
		for range 8 {
			conn := servers[i].plainConn(b)
			defer conn.Close()
			servers[i].stubs = append(servers[i].stubs, hello.NewGreeterClient(conn))
		}
	}
	all := figures{}
	for round := range *rounds + 1 {
		costs := map[string]float64{} // µs
		for _, s := range servers {
			var answered atomic.Int64
			var callers sync.WaitGroup
			lasts := *phase
			if round == 0 {
				lasts = 500 * time.Millisecond // the first answers say nothing
			}
			before, end := s.CPU(b), time.Now().Add(lasts)
			for i := range 64 {
				callers.Go(func() {
					for time.Now().Before(end) {
						ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), sliceletgrpc.CriticalityHeader, "sheddable", sliceletgrpc.CohortHeader, "5"), 500*time.Millisecond)
						_, err := s.stubs[i%len(s.stubs)].SayHello(ctx, wrapperspb.String(""))
						cancel()
						if status.Code(err) != s.want && round > 0 {
							b.Errorf("%s: %v", s.name, err)
							return
						}
						answered.Add(1)
					}
				})
			}
			callers.Wait()
			costs[s.name] = float64((s.CPU(b) - before).Microseconds()) / float64(answered.Load())
		}
		if round == 0 {
			continue
		}
		for _, s := range servers {
			all.add(unit(s.name, "CPU-us"), costs[s.name])
		}
		all.add("refused/served", costs["refused"]/costs["served"])
		all.add("refused/plain", costs["refused"]/costs["plain"])
		all.add("served/plain", costs["served"]/costs["plain"])
	}
	all.report(b)
}
