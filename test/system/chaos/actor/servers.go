package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/boottime"
	"github.com/slicer-project/slicer/test/system/chaos/record"
)

// drainTimeout bounds what a server does after SIGTERM.
const drainTimeout = 30 * time.Second

// runServers serves until it is told to drain, and has.
func runServers(ctx context.Context, cfg Config, log *record.Log) error {
	var listeners []net.Listener
	for _, a := range cfg.Addresses {
		l, err := net.Listen("tcp", a)
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
	}
	servers := make([]*server, len(listeners))
	for i, l := range listeners {
		s, err := newServer(cfg, cfg.Names[i], l)
		if err != nil {
			return err
		}
		servers[i] = s
	}
	log.Add(record.Line{Up: &record.Up{Tasks: cfg.Names, At: boottime.Now()}})
	if err := log.FlushUntil(ctx); err != nil {
		return err
	}
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = s.end() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// server is a task, which speaks HTTP and gRPC at one address.
type server struct {
	s    *slicelet.Slicelet
	http *http.Server
	grpc *grpc.Server
	wg   sync.WaitGroup
}

// answerFormat is what a server says: its name, and whether the key is its own.
const answerFormat = "%s %t"

func newServer(cfg Config, name string, l net.Listener) (*server, error) {
	sl, err := slicelet.New(slicelet.Config{Job: cfg.Job, Task: name, Address: l.Addr().String(),
		Distributors: cfg.Distributors, Backups: cfg.Backups, Logger: slog.Default()})
	if err != nil {
		return nil, err
	}
	s := &server{s: sl}
	handler, err := slicelethttp.Handler(sl, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, _ := slicelethttp.HandleFrom(r.Context())
		fmt.Fprintf(w, answerFormat, name, h.Owned())
	}), slicelethttp.Config{RequireKey: true})
	if err != nil {
		return nil, err
	}
	s.http = &http.Server{Handler: handler}
	s.grpc = grpc.NewServer(sliceletgrpc.ServerOptions(sl, sliceletgrpc.Config{RequireKey: true})...)
	hello.RegisterGreeterServer(s.grpc, greeter{name: name})
	f := newFork(l)
	s.wg.Go(func() { _ = s.http.Serve(f.http) })
	s.wg.Go(func() { _ = s.grpc.Serve(f.grpc) })
	return s, nil
}

// end drains both servers, whose slicelet is one.
func (s *server) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := s.s.Drain(ctx); err != nil {
		slog.Error("drain", "error", err)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.grpc.GracefulStop() }()
	err := s.http.Shutdown(ctx)
	select {
	case <-stopped:
	case <-ctx.Done():
		s.grpc.Stop()
		<-stopped
	}
	s.wg.Wait()
	return errors.Join(err, s.s.Close())
}

type greeter struct {
	hello.Greeter
	name string
}

func (g greeter) SayHello(ctx context.Context, _ *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	h, _ := sliceletgrpc.HandleFrom(ctx)
	return wrapperspb.String(fmt.Sprintf(answerFormat, g.name, h.Owned())), nil
}
