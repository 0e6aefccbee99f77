// Command server keeps entries in memory, as a task of the job entries, and hands
// them over when it is told to go.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/examples/handover"
)

func main() {
	task := flag.String("task", "", "the server's name, kept across restarts; else that in SLICER_TASK or POD_NAME")
	slicer := flag.String("slicer", "127.0.0.1:4720", "slicer serve, host:port")
	consistent := flag.Bool("consistent", false, "the job is in consistent mode")
	flag.Parse()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	cfg := slicelet.Config{Job: "entries", Task: *task, Address: lis.Addr().String(), Distributors: []string{*slicer}}
	if *consistent {
		conn, err := grpc.NewClient(*slicer, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			log.Fatal(err)
		}
		defer conn.Close()
		if cfg.Leases, err = lease.NewReader(lease.Config{Readers: remote.New(conn)}); err != nil {
			log.Fatal(err)
		}
		defer cfg.Leases.Close()
	}
	cfg.WholeAssignment = true // all tasks are asked, not only those that ranges come from
	s, err := slicelet.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	entries := handover.New(s)
	server := &http.Server{Handler: entries}
	sigterm, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	go server.Serve(lis)
	<-sigterm.Done()
	stop() // a second signal ends it at once
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Drain(ctx); err != nil { // the slices move, and the listener has been told
		log.Print(err)
	} else if err := entries.Emptied(ctx); err != nil { // the others have fetched all entries
		log.Print(err)
	}
	server.Shutdown(ctx)
	s.Close()
}
