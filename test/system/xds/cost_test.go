package xds

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

// BenchmarkCall is what a call of grpc-go's xDS client costs beside one by round_robin to the
// same 10 servers, with the same headers: the median over rounds of what 200 calls, one after
// the other, took by each in the same round. Servers are in this process, and are part of it.
func BenchmarkCall(b *testing.B) {
	addrs := serveAll(b, stageTasks)
	plain := manual.NewBuilderWithScheme("plain")
	var at resolver.State
	for _, a := range addrs {
		at.Endpoints = append(at.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a}}})
	}
	plain.InitialState(at)
	base, err := grpc.NewClient("plain:///", grpc.WithResolvers(plain), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))
	if err != nil {
		b.Fatal(err)
	}
	defer base.Close()
	const calls = 200
	var keyedBy [calls]context.Context
	for i := range keyedBy {
		keyedBy[i] = keyed(b.Context(), fmt.Sprintf("user-%d", i))
	}
	round := func(cc *grpc.ClientConn) time.Duration {
		began := time.Now()
		for _, ctx := range keyedBy {
			if _, err := hello.NewGreeterClient(cc).SayHello(ctx, wrapperspb.String("x")); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(began)
	}
	for _, x := range stages {
		b.Run(x.name, func(b *testing.B) {
			routed := dial(b, job, "go-0", []string{x.make(b, addrs).addr})
			round(base)
			round(routed)
			var ratios []float64
			for b.Loop() {
				was := round(base)
				ratios = append(ratios, float64(round(routed))/float64(was))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "of_round_robin")
		})
	}
}
