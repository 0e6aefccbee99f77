package clerkgrpc

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/pings"
)

// TestWindows: gRPC does not measure by pings how much is under way, unless it is asked to.
func TestWindows(t *testing.T) {
	for _, dynamic := range []bool{false, true} {
		run(t, Config{}, func(b *bed) {
			var sent pings.Counter
			tasks := three()
			for _, task := range tasks {
				b.serve(task, grpc.StaticConnWindowSize(connectionWindow)) // no pings of its own to answer
			}
			b.put(tasks, each...)
			conn, err := grpc.NewClient("slicer:///"+jobName, append(DialOptions(Config{
				Clerk: clerk.Config{Distributors: []string{distributor}, DialOptions: b.net.DialOptions()}, DynamicWindows: dynamic,
			}), insecureOption, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				nc, err := b.reach(ctx, addr)
				if err != nil {
					return nil, err
				}
				return sent.Conn(nc), nil
			}))...)
			if err != nil {
				b.t.Fatal(err)
			}
			defer conn.Close()
			for range 10 {
				if _, err := hello.NewGreeterClient(conn).SayHello(clerk.WithKey(b.t.Context(), "key"), wrapperspb.String("name")); err != nil {
					b.t.Fatal(err)
				}
			}
			if n := sent.Seen(); n > 0 != dynamic {
				b.t.Errorf("dynamic windows %v: %d pings", dynamic, n)
			}
		})
	}
}
