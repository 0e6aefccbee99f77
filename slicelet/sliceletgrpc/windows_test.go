package sliceletgrpc

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/pings"
)

// TestWindows: gRPC does not measure by pings how much is under way, unless it is asked to.
func TestWindows(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		for _, dynamic := range []bool{false, true} {
			var sent pings.Counter
			lis := bufconn.Listen(1 << 16)
			srv := grpc.NewServer(ServerOptions(b.slicelet, Config{DynamicWindows: dynamic})...)
			hello.RegisterGreeterServer(srv, b.service)
			ended := make(chan error, 1)
			go func() { ended <- srv.Serve(sent.Listener(lis)) }()
			conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithStaticConnWindowSize(connectionWindow), // no pings of its own to answer
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
			if err != nil {
				b.t.Fatal(err)
			}
			for range 10 {
				if _, err := hello.NewGreeterClient(conn).SayHello(b.t.Context(), wrapperspb.String("name")); err != nil {
					b.t.Error(err)
				}
			}
			if n := sent.Seen(); n > 0 != dynamic {
				b.t.Errorf("dynamic windows %v: %d pings", dynamic, n)
			}
			conn.Close()
			srv.Stop()
			if err := <-ended; err != nil {
				b.t.Error(err)
			}
		}
	})
}
