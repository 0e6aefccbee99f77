package overload

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/leastrequest"
	_ "google.golang.org/grpc/balancer/weightedroundrobin"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/onecore"
)

var (
	replicasLoad    = flag.Float64("replicas.load", .8, "BenchmarkReplicas: what is asked for, of what all three can do")
	replicasClients = flag.Int("replicas.clients", 10, "BenchmarkReplicas: how many clients ask")
)

// BenchmarkReplicas has clients ask three replicas of all keys of which one is half as fast, by
// our default choice and by those of gRPC, of the same servers in turns, and reports the latency
// of the slowest hundredth, of the best of gRPC's .8 is the limit, and the share of its time
// that the busiest replica was busy, of that of the least busy, 1.25. A replica serves one
// request after the other, each of which takes an exponentially distributed time, 10 ms on
// average and 20 ms at the slow one, in which it waits and does not compute: so three share a
// core of which they need a tenth, and the host adds little. What of its time a replica is busy
// it reports as its utilization, by which weights go, gRPC's after a second. Requests come at
// times that were drawn before, and count from these.
//
//	go test ./test/bench/overload -run '^$' -bench Replicas -benchtime 1x -phase 20s -rounds 5 -timeout 30m
func BenchmarkReplicas(b *testing.B) {
	onecore.Apart(b)
	plane := bed.Start(b, bed.Config{})
	cfg := assignment.JobConfig{Name: "job", MinReplicas: 3, MaxReplicas: 3, Balance: assignment.BalanceConfig{Interval: time.Hour}}
	if err := plane.PutJob(b.Context(), cfg.WithDefaults()); err != nil {
		b.Fatal(err)
	}
	const takes = 10 * time.Millisecond
	var servers []*child
	for i, slower := range []time.Duration{1, 1, 2} {
		c := spec{Job: "job", Task: fmt.Sprint("task-", i), Distributor: plane.Addrs()[0], Waits: slower * takes}.start(b)
		servers = append(servers, c)
	}
	awaitReplicas(b, plane, "job", len(servers), len(servers))
	rate := *replicasLoad * 2.5 / takes.Seconds()
	choices := []struct{ name, config string }{
		{"ours", ""},
		{"round_robin", `{"round_robin":{}}`},
		{"weighted_round_robin", `{"weighted_round_robin":{"blackoutPeriod":"1s"}}`},
		{"least_request", `{"least_request_experimental":{"choiceCount":2}}`},
	}
	all := figures{}
	for round := range *rounds {
		p99s, best := map[string]time.Duration{}, time.Hour
		for _, choice := range choices {
			stubs := make([]hello.GreeterClient, *replicasClients)
			for i := range stubs {
				if choice.config == "" {
					conn := jobConn(b, "job", plane.Addrs())
					defer conn.Close()
					stubs[i] = hello.NewGreeterClient(conn)
					continue
				}
				conn := choosing(b, servers, choice.config)
				defer conn.Close()
				stubs[i] = hello.NewGreeterClient(conn)
			}
			var mu sync.Mutex
			var took []time.Duration
			failed := 0
			ask := func(lasts time.Duration, counts bool) {
				n := 0
				steady(uint64(round), rate, lasts, func(rng *rand.Rand, at time.Time) func() {
					stub, key := stubs[n%len(stubs)], strconv.Itoa(rng.IntN(1000))
					n++
					return func() {
						ctx, cancel := context.WithDeadline(context.Background(), at.Add(10*time.Second))
						defer cancel()
						_, err := stub.SayHello(clerk.WithKey(ctx, key), wrapperspb.String(""))
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							failed++
						}
						if counts {
							took = append(took, time.Since(at))
						}
					}
				})
			}
			ask(4*time.Second, false) // until all weights are known
			begin, before, cpu := time.Now(), make([]time.Duration, len(servers)), 0.
			for i, s := range servers {
				before[i] = s.busy(b)
				cpu -= s.CPU(b).Seconds()
			}
			ask(*phase, true)
			busy, lasted := make([]float64, len(servers)), time.Since(begin).Seconds()
			for i, s := range servers {
				busy[i] = (s.busy(b) - before[i]).Seconds() / lasted
				cpu += s.CPU(b).Seconds()
			}
			slices.Sort(took)
			p99 := took[len(took)*99/100]
			if p99s[choice.name] = p99; choice.config != "" {
				best = min(best, p99)
			}
			all.add(choice.name+"-p99-ms", p99.Seconds()*1000)
			all.add(choice.name+"-p50-ms", took[len(took)/2].Seconds()*1000)
			all.add(choice.name+"-spread", slices.Max(busy)/slices.Min(busy))
			all.add("failed", float64(failed))
			all.add("CPU-of-all", cpu/lasted)
		}
		all.add("p99/best", float64(p99s["ours"])/float64(best))
	}
	all.report(b)
}

// choosing is a connection to servers among which gRPC chooses by a policy.
func choosing(b *testing.B, servers []*child, policy string, opts ...grpc.DialOption) *grpc.ClientConn {
	b.Helper()
	var at resolver.State
	for _, c := range servers {
		at.Endpoints = append(at.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: c.Addr}}})
	}
	r := manual.NewBuilderWithScheme("replicas")
	r.InitialState(at)
	conn, err := grpc.NewClient("replicas:///", append(opts, grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[`+policy+`]}`))...)
	if err != nil {
		b.Fatal(err)
	}
	return conn
}

// awaitReplicas waits until so many tasks own keys, and so many each key.
func awaitReplicas(tb testing.TB, plane *bed.Plane, job string, tasks, replicas int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	ck, err := clerk.New(clerk.Config{Job: job, Distributors: plane.Addrs()})
	if err != nil {
		tb.Fatal(err)
	}
	defer ck.Close()
	for {
		changed := ck.Changed()
		if a := ck.Assignment(); a != nil {
			least, own := replicas, map[string]bool{}
			for _, owners := range a.All() {
				least = min(least, owners.Len())
				for owner := range owners.All() {
					own[owner.Name] = true
				}
			}
			if least == replicas && len(own) == tasks {
				return
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			tb.Fatalf("not each key of %s has %d owners, or not %d tasks own any", job, replicas, tasks)
		}
	}
}
