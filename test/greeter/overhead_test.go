package greeter

import (
	"context"
	"fmt"
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
	"github.com/slicer-project/slicer/test/bed"
	"github.com/slicer-project/slicer/test/greeter/hello"
)

// minShare is of the QPS of round_robin.
const minShare = .95

// BenchmarkOverhead sends RPCs in short turns, from as many callers each, to the
// same servers, which meter every RPC by its key: routed by key, with the key in
// the metadata; the same with the key only where the server finds it in the
// request; and by round_robin. All is one process: among several, a machine that is
// short of CPU gives each the same, which favours whoever asks all alike.
func BenchmarkOverhead(b *testing.B) {
	const servers, callers, rounds, perRound = 4, 16, 100, 1000
	ctx := b.Context()
	plane := bed.Start(b, bed.Config{})
	if err := plane.PutJob(ctx, assignment.JobConfig{Name: job}.WithDefaults()); err != nil {
		b.Fatal(err)
	}
	slicer := plane.Addrs()[0]
	r := manual.NewBuilderWithScheme("servers")
	var state resolver.State
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
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: s.lis.Addr().String()}}})
	}
	r.InitialState(state)
	ck, err := clerk.New(clerk.Config{Job: job, Distributors: []string{slicer}})
	if err != nil {
		b.Fatal(err)
	}
	bed.CloseAtEnd(b, ck.Close)
	await(b, "all servers own slices", func() bool { return owning(ck.Assignment()) == servers })

	clients := [3]hello.GreeterClient{
		dial(b, "slicer:///"+job, clerkgrpc.DialOptions(clerkgrpc.Config{Shared: ck})...),
		dial(b, "slicer:///"+job, clerkgrpc.DialOptions(clerkgrpc.Config{Shared: ck, SendKey: "-"})...),
		dial(b, "servers:///", grpc.WithResolvers(r), grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`)),
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
		var qps [3][]float64
		var latencies [3][]time.Duration
		for i := range clients { // to warm up
			round(clients[i], new([]time.Duration))
		}
		for n := range rounds {
			for i := range clients {
				i = (i + n) % len(clients) // none always comes first
				qps[i] = append(qps[i], round(clients[i], &latencies[i]))
			}
		}
		report := func(i int) string {
			return fmt.Sprintf("%.0f RPCs a second, p50 %v, p99 %v", median(qps[i]), quantile(latencies[i], .5), quantile(latencies[i], .99))
		}
		// What disturbs the machine disturbs all that is sent in a round.
		share := func(i int) float64 {
			ratios := make([]float64, rounds)
			for n := range ratios {
				ratios[n] = qps[i][n] / qps[2][n]
			}
			return median(ratios)
		}
		header, request := share(0), share(1)
		b.Logf("%d servers, %d callers, round_robin: %s", servers, callers, report(2))
		b.Logf("by key: %s: %.3f of round_robin's QPS (limit %.2f)", report(0), header, minShare)
		b.Logf("by key, which is in the request: %s: %.3f", report(1), request)
		b.ReportMetric(header, "ratio")
		b.ReportMetric(request, "ratio/in-request")
		b.ReportMetric(float64(quantile(latencies[0], .99).Microseconds()), "us/p99")
		b.ReportMetric(float64(quantile(latencies[2], .99).Microseconds()), "us/p99/round_robin")
		if header < minShare {
			b.Error("the limit is missed")
		}
	}
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
