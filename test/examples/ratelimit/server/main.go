// Command server owns rate limits, as a task of the job limits.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/ratelimit"
	"github.com/slicer-project/slicer/test/examples/ratelimit/wire"
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
	s, err := slicelet.New(slicelet.Config{Job: ratelimit.Job, Task: *task, Address: lis.Addr().String(), Distributors: []string{*slicer}})
	if err != nil {
		log.Fatal(err)
	}
	limits, err := ratelimit.NewServer(ratelimit.ServerConfig{
		Slicelet: s, DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{})...)
	wire.RegisterLimiterServer(server, limits)
	h := health.NewServer()
	healthv1.RegisterHealthServer(server, h)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	go server.Serve(lis)
	<-ctx.Done()
	stop() // a second signal ends it at once
	// The slices move, and the limits with them; then the server ends.
	if err := sliceletgrpc.Drain(context.Background(), s, server, h); err != nil {
		log.Print(err)
	}
	limits.Close()
}
