package clerkgrpc

import (
	"net"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

// BenchmarkProxy is one unary RPC after the other to a server on loopback: without a
// proxy, by clerkgrpc, through a Proxy, and through the proxy of HTTP, which passes gRPC on
// as HTTP/2.
func BenchmarkProxy(b *testing.B) {
	serve := func(serve func(net.Listener) error, stop func()) string {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = serve(lis)
		}()
		b.Cleanup(func() { stop(); <-done })
		return lis.Addr().String()
	}
	srv := grpc.NewServer()
	hello.RegisterGreeterServer(srv, hello.Greeter{})
	network := subscribertest.NewNetwork()
	plane := network.Start(distributor)
	defer plane.Stop()
	task := subscribertest.Task("t", 0)
	task.Address = serve(srv.Serve, srv.Stop)
	plane.Put(subscribertest.Equal(b, nil, assignment.Header{Job: jobName, StoreID: 1, Generation: 1}, []assignment.Task{task}, 0, 0, 0, 0))
	clerks := func(job string) (*clerk.Clerk, error) {
		return clerk.New(clerk.Config{Job: job, Distributors: []string{distributor}, DialOptions: network.DialOptions()})
	}
	proxy, err := NewProxy(ProxyConfig{Rules: front.Rules{List: []front.Rule{byUser}}, Clerk: clerks, DialOptions: []grpc.DialOption{insecureOption}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { proxy.Close() })
	ours := grpc.NewServer(proxy.ServerOptions()...)
	h2c := byUser
	h2c.Upstream = front.H2C
	other, err := clerkhttp.NewProxy(clerkhttp.ProxyConfig{Rules: front.Rules{List: []front.Rule{h2c}}, Clerk: clerks})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { other.Close() })
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	theirs := &http.Server{Handler: other, Protocols: protocols}
	for _, to := range []struct {
		name, target string
		opts         []grpc.DialOption
	}{
		{"none", "passthrough:///" + task.Address, nil},
		{"library", "slicer:///" + jobName, DialOptions(Config{Clerk: clerk.Config{Distributors: []string{distributor}, DialOptions: network.DialOptions()}, Header: "x-user"})},
		{"proxy", "passthrough:///" + serve(ours.Serve, ours.Stop), nil},
		{"proxy of HTTP", "passthrough:///" + serve(theirs.Serve, func() { theirs.Close() }), nil},
	} {
		b.Run(to.name, func(b *testing.B) {
			b.ReportAllocs()
			conn, err := grpc.NewClient(to.target, append(to.opts, insecureOption)...)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			stub := hello.NewGreeterClient(conn)
			ctx := metadata.AppendToOutgoingContext(b.Context(), "x-user", "user/4711")
			name := wrapperspb.String("name")
			for b.Loop() {
				if _, err := stub.SayHello(ctx, name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
