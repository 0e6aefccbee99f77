// Command server greets. It is the program before it was sharded.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to serve, host:port")
	flag.Parse()
	lis, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	hello.RegisterGreeterServer(server, hello.Greeter{From: lis.Addr().String()})
	h := health.NewServer()
	healthv1.RegisterHealthServer(server, h)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	go server.Serve(lis)
	<-ctx.Done()
	stop() // a second signal ends it at once
	h.Shutdown()
	server.GracefulStop()
}
