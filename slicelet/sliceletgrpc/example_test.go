package sliceletgrpc_test

import (
	"context"
	"log"
	"net"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

func Example() {
	lis, err := net.Listen("tcp", "10.1.2.3:8080")
	if err != nil {
		log.Fatal(err)
	}
	s, err := slicelet.New(slicelet.Config{
		Job: "greeter", Task: "greeter-3", Address: lis.Addr().String(), Distributors: []string{"slicer:4720"},
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{})...)
	hello.RegisterGreeterServer(server, hello.Greeter{})
	h := health.NewServer()
	healthv1.RegisterHealthServer(server, h)
	go server.Serve(lis)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	<-ctx.Done()
	if err := sliceletgrpc.Drain(context.Background(), s, server, h); err != nil {
		log.Print(err)
	}
}
