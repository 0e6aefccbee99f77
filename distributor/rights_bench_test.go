package distributor

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/cputest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// BenchmarkHello has subscribers come who hold the newest assignment, and leave once they
// have been told so: to a Distributor without rights and to one with a policy and a job of
// twenty patterns, in turns of twenty, each as a stream of a connection that stands and
// as a connection of its own. x-cpu is the CPU time of one with rights, in the time of one
// without, median of the turns; the limit is 1.1. It is the time of both ends in one process:
// us-more is the difference.
func BenchmarkHello(b *testing.B) {
	b.Run("streams", func(b *testing.B) { hellos(b, false) })
	b.Run("connections", func(b *testing.B) { hellos(b, true) })
}

func hellos(b *testing.B, connections bool) {
	const turn = 20 // a second has many, of which the median says something
	authority := accesstest.New(b)
	creds, client := grpc.Creds(authority.Server(plane1)), authority.Client(bob)
	access := &slicerv1.Access{Watch: []string{"spiffe://corp/web/*"}}
	for i := range 19 {
		access.Own = append(access.Own, fmt.Sprintf("spiffe://corp/web/server-%d/task/{task}", i))
	}
	a := firstOf(b, testJob, testStore, baseGen, 1000)
	sides := [2]struct {
		address string
		cc      *grpc.ClientConn
	}{}
	for i := range sides {
		var cfg Config
		if i == 1 {
			cfg.Rights = accesstest.Rights(b, testPolicy, nil)
		}
		_, f, address := loopback(b, cfg, creds)
		f.access = map[string]*slicerv1.Access{testJob: access}
		f.set(a)
		sides[i].address, sides[i].cc = address, dialHello(b, address, grpc.WithTransportCredentials(client))
	}
	hello := func(i int) {
		cc := sides[i].cc
		if connections {
			cc = dialHello(b, sides[i].address, grpc.WithTransportCredentials(client))
			defer cc.Close()
		}
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		s, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx)
		if err == nil {
			err = s.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: holding(clerkHello("c1"), a)}})
		}
		if err == nil {
			_, err = s.Recv()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	run := func(i int) time.Duration {
		before := cputest.Own()
		for range turn {
			hello(i)
		}
		return cputest.Own() - before
	}
	run(0)
	run(1)
	var ratios []float64
	var cpu [2]time.Duration
	for n := 0; b.Loop(); n++ {
		var took [2]time.Duration
		for _, i := range []int{n % 2, 1 - n%2} {
			took[i] = run(i)
			cpu[i] += took[i]
		}
		ratios = append(ratios, took[1].Seconds()/took[0].Seconds())
	}
	slices.Sort(ratios)
	us := func(i int) float64 { return cpu[i].Seconds() * 1e6 / turn / float64(len(ratios)) }
	b.ReportMetric(us(0), "us/hello-without")
	b.ReportMetric(us(1)-us(0), "us-more")
	b.ReportMetric(ratios[len(ratios)/2], "x-cpu")
	b.ReportMetric(1.1, "x-cpu-limit")
	b.ReportMetric(0, "ns/op")
}

func dialHello(b *testing.B, address string, opts ...grpc.DialOption) *grpc.ClientConn {
	b.Helper()
	cc, err := grpc.NewClient("passthrough:///"+address, opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cc.Close() })
	return cc
}
