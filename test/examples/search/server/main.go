// Command server searches tenants' documents, as a task of the job search.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"

	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
	"github.com/slicer-project/slicer/test/examples/search"
)

func main() {
	task := flag.String("task", "", "the server's name, kept across restarts; else that in SLICER_TASK or POD_NAME")
	slicer := flag.String("slicer", "127.0.0.1:4720", "a Distributor, host:port")
	flag.Parse()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	s, err := slicelet.New(slicelet.Config{Job: "search", Task: *task, Address: lis.Addr().String(), Distributors: []string{*slicer}})
	if err != nil {
		log.Fatal(err)
	}
	var documents search.Index // all tenants have the same here
	for i := range 100_000 {
		documents = append(documents, fmt.Sprintf("Document %d of all that there are", 100_000-i))
	}
	handler, err := slicelethttp.Handler(s, search.Handler(func(string) search.Index { return documents }), slicelethttp.Config{Key: search.Tenant})
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
