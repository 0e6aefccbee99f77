package greeter

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// Limits of the shares of round_robin's QPS: see deploy/docs/FIGURES.md. The client's
// half is round_robin's to the same servers, both halves its to plain ones.
const minClient, minBoth = .90, .82

// BenchmarkOverhead sends RPCs in short turns, from as many callers each: to servers that
// meter every RPC by its key, routed by the key in the metadata; the same with the key
// only where the server finds it in the request; by round_robin; and by round_robin to as
// many plain gRPC servers, which is what a service is before it is sharded. All is one
// process: among several, a machine that is short of CPU gives each the same, which
// favours a client that asks all alike.
func BenchmarkOverhead(b *testing.B) {
	const servers, callers, rounds, perRound = 4, 16, 100, 1000
	ctx := b.Context()
	plane := bed.Start(b, bed.Config{})
	if err := plane.PutJob(ctx, assignment.JobConfig{Name: job}.WithDefaults()); err != nil {
		b.Fatal(err)
	}
	slicer := plane.Addrs()[0]
	ours, plain := manual.NewBuilderWithScheme("ours"), manual.NewBuilderWithScheme("plain")
	var oursAt, plainAt resolver.State
	for i := range servers {
		s, err := newServer(fmt.Sprintf("greeter-%02d", i), slicer)
		if err != nil {
			b.Fatal(err)
		}
		go s.server.Serve(s.lis)
		bed.CloseAtEnd(b, func() error {
			s.server.Stop()
			return s.slicelet.Close()
		})
		oursAt.Endpoints = append(oursAt.Endpoints, endpoint(s.lis))
		plainAt.Endpoints = append(plainAt.Endpoints, endpoint(startPlain(b)))
	}
	ours.InitialState(oursAt)
	plain.InitialState(plainAt)
	ck, err := clerk.New(clerk.Config{Job: job, Distributors: []string{slicer}})
	if err != nil {
		b.Fatal(err)
	}
	bed.CloseAtEnd(b, ck.Close)
	await(b, "all servers own slices", func() bool { return owning(ck.Assignment()) == servers })

	const header, request, clientless, serverless = 0, 1, 2, 3
	roundRobin := grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`)
	clients := [4]hello.GreeterClient{
		header:     dial(b, "slicer:///"+job, clerkgrpc.DialOptions(clerkgrpc.Config{Shared: ck})...),
		request:    dial(b, "slicer:///"+job, clerkgrpc.DialOptions(clerkgrpc.Config{Shared: ck, SendKey: "-"})...),
		clientless: dial(b, "ours:///", grpc.WithResolvers(ours), roundRobin),
		serverless: dial(b, "plain:///", grpc.WithResolvers(plain), roundRobin),
	}
	keys := make([]string, 1<<12)
	for i := range keys {
		keys[i] = fmt.Sprintf("user/%d", i)
	}
	round := func(c hello.GreeterClient, latencies *[]time.Duration) (qps float64) {
		took := make([]time.Duration, perRound)
		began := time.Now()
		var wg sync.WaitGroup
		for w := range callers {
			wg.Go(func() {
				for i := w; i < perRound; i += callers {
					// What both need: a deadline and a request.
					ctx, cancel := context.WithTimeout(ctx, callLimit)
					key := keys[i%len(keys)]
					start := time.Now()
					_, err := c.SayHello(clerk.WithKey(ctx, key), wrapperspb.String(key))
					took[i] = time.Since(start)
					cancel()
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		*latencies = append(*latencies, took...)
		return perRound / time.Since(began).Seconds()
	}
	for b.Loop() {
		var qps [4][]float64
		var latencies [4][]time.Duration
		for i := range clients { // to warm up
			round(clients[i], new([]time.Duration))
		}
		for n := range rounds {
			for i := range clients {
				i = (i + n) % len(clients) // none always comes first
				qps[i] = append(qps[i], round(clients[i], &latencies[i]))
			}
		}
		// What disturbs the machine disturbs all that is sent in a round.
		share := func(i, of int) float64 {
			ratios := make([]float64, rounds)
			for n := range ratios {
				ratios[n] = qps[i][n] / qps[of][n]
			}
			return median(ratios)
		}
		for i, what := range []string{"by key", "by key, which is in the request", "round_robin", "round_robin to plain servers"} {
			b.Logf("%d servers, %d callers, %s: %.0f RPCs a second, p50 %v, p99 %v", servers, callers, what,
				median(qps[i]), quantile(latencies[i], .5), quantile(latencies[i], .99))
		}
		b.ReportMetric(share(header, clientless), "ratio/client")
		b.ReportMetric(share(request, clientless), "ratio/client-in-request")
		b.ReportMetric(share(clientless, serverless), "ratio/server")
		b.ReportMetric(share(header, serverless), "ratio/both")
		b.ReportMetric(share(request, serverless), "ratio/both-in-request")
		if c, s := share(header, clientless), share(header, serverless); c < minClient || s < minBoth {
			b.Errorf("by key %.3f of round_robin's QPS to the same servers, and %.3f of its to plain ones: the limits are %.2f and %.2f", c, s, minClient, minBoth)
		}
	}
}

// startPlain starts a server that is as it was before it was sharded.
func startPlain(b *testing.B) net.Listener {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	hello.RegisterGreeterServer(server, unsharded{})
	go server.Serve(lis)
	bed.CloseAtEnd(b, func() error { server.Stop(); return nil })
	return lis
}

// unsharded answers as teller does, without asking.
type unsharded struct{ hello.Greeter }

func (unsharded) SayHello(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	return wrapperspb.String(owned), nil
}

func endpoint(lis net.Listener) resolver.Endpoint {
	return resolver.Endpoint{Addresses: []resolver.Address{{Addr: lis.Addr().String()}}}
}

func dial(tb testing.TB, target string, opts ...grpc.DialOption) hello.GreeterClient {
	tb.Helper()
	conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		tb.Fatal(err)
	}
	bed.CloseAtEnd(tb, conn.Close)
	return hello.NewGreeterClient(conn)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

func quantile(v []time.Duration, q float64) time.Duration {
	slices.Sort(v)
	return v[int(q*float64(len(v)-1))]
}
