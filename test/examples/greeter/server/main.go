// Command server greets, as a task of the job greeter.
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

	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to serve, host:port")
	task := flag.String("task", "", "the server's name, kept across restarts; else that in SLICER_TASK or POD_NAME")
	slicer := flag.String("slicer", "127.0.0.1:4720", "a Distributor, host:port")
	flag.Parse()
	lis, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	s, err := slicelet.New(slicelet.Config{Job: "greeter", Task: *task, Address: lis.Addr().String(), Distributors: []string{*slicer}})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{})...)
	hello.RegisterGreeterServer(server, hello.Greeter{From: lis.Addr().String()})
	h := health.NewServer()
	healthv1.RegisterHealthServer(server, h)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	go server.Serve(lis)
	<-ctx.Done()
	stop() // a second signal ends it at once
	sliceletgrpc.Drain(context.Background(), s, server, h)
}
