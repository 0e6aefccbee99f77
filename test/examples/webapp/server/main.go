// Command server counts users' visits, as a task of the job visits.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"

	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
	"github.com/slicer-project/slicer/test/examples/webapp/visits"
)

func main() {
	task := flag.String("task", "", "the server's name, kept across restarts; else that in SLICER_TASK or POD_NAME")
	slicer := flag.String("slicer", "127.0.0.1:4720", "a Distributor, host:port")
	flag.Parse()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	s, err := slicelet.New(slicelet.Config{Job: "visits", Task: *task, Address: lis.Addr().String(), Distributors: []string{*slicer}})
	if err != nil {
		log.Fatal(err)
	}
	handler, err := slicelethttp.Handler(s, visits.Handler(*task), slicelethttp.Config{})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	go server.Serve(lis)
	<-ctx.Done()
	stop() // a second signal ends it at once
	slicelethttp.Drain(context.Background(), s, server)
}
