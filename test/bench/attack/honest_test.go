package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

// honestEnv makes the benchmark's own program the servers or the clients of a soak.
const honestEnv = "SLICER_TEST_HONEST"

type honestConfig struct {
	Role, HTTP                  string
	Distributors, Backups, Etcd []string
	Serve                       string // address of slicer serve
}

const (
	// life is how long a server or a client lives, on average, before another with a new
	// name takes its place: what is kept for each name shows as growth.
	life           = 30 * time.Second
	callsPerSecond = 20 // of each client
	callTimeout    = 5 * time.Second
)

// plane is what is behind one control plane's jobs.
type plane struct {
	distributors, backups []string
	leases                lease.Readers
	registry              *prom.Registry
}

func runHonest(text string) error {
	var cfg honestConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	registry := prom.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	lis, err := net.Listen("tcp", cfg.HTTP)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	page := &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
	wg.Go(func() { _ = page.Serve(lis) })
	defer page.Close()
	store, err := etcdlease.Open(ctx, etcdlease.Config{Endpoints: cfg.Etcd})
	if err != nil {
		return err
	}
	defer store.Close()
	conn, err := grpc.NewClient(cfg.Serve, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	planes := []*plane{
		{cfg.Distributors, cfg.Backups, store, registry},
		{[]string{cfg.Serve}, nil, remote.New(conn), registry},
	}
	if cfg.Role == "servers" {
		for _, p := range planes {
			for job, n := range map[string]int{job: 4, "shop": 4, "ledger": 3} {
				for i := range n {
					wg.Go(func() { p.seat(ctx, job, i) })
				}
			}
		}
	} else {
		c := newCounts(registry)
		for _, p := range planes {
			for _, job := range []string{"shop", "ledger"} {
				wg.Go(func() { p.clients(ctx, job, c) })
			}
		}
	}
	<-ctx.Done()
	return nil
}

// seat is one server after the other.
func (p *plane) seat(ctx context.Context, job string, i int) {
	for n := 0; ctx.Err() == nil; n++ {
		if err := p.serve(ctx, job, fmt.Sprintf("%s-%d-%d-%d", job, os.Getpid(), i, n)); err != nil {
			slog.Error("server", "job", job, "error", err)
			pause(ctx, time.Second)
		}
	}
}

func (p *plane) serve(ctx context.Context, job, name string) error {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer lis.Close()
	cfg := slicelet.Config{Job: job, Task: name, Address: lis.Addr().String(), Distributors: p.distributors, Backups: p.backups, Registerer: p.registry}
	if job == "ledger" {
		if cfg.Leases, err = lease.NewReader(lease.Config{Readers: p.leases, TTL: 2 * time.Second}); err != nil {
			return err
		}
		defer cfg.Leases.Close()
	}
	s, err := slicelet.New(cfg)
	if err != nil {
		return err
	}
	server := grpc.NewServer(sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{RequireKey: true})...)
	hello.RegisterGreeterServer(server, hello.Greeter{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(lis) }()
	pause(ctx, life/2+rand.N(life))
	drain, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(sliceletgrpc.Drain(drain, s, server, nil), <-done)
}

type counts struct{ calls, failures prom.Counter }

func newCounts(r prom.Registerer) *counts {
	c := &counts{
		prom.NewCounter(prom.CounterOpts{Name: "soak_calls_total", Help: "Calls made."}),
		prom.NewCounter(prom.CounterOpts{Name: "soak_failures_total", Help: "Calls that failed."}),
	}
	r.MustRegister(c.calls, c.failures)
	return c
}

// clients are one client after the other.
func (p *plane) clients(ctx context.Context, job string, c *counts) {
	for ctx.Err() == nil {
		if err := p.call(ctx, job, c); err != nil {
			slog.Error("client", "job", job, "error", err)
			c.failures.Inc()
			pause(ctx, time.Second)
		}
	}
}

func (p *plane) call(ctx context.Context, job string, c *counts) error {
	ck, err := clerk.New(clerk.Config{Job: job, Distributors: p.distributors, Backups: p.backups, Registerer: p.registry})
	if err != nil {
		return err
	}
	defer ck.Close()
	opts := append(clerkgrpc.DialOptions(clerkgrpc.Config{Shared: ck}), grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(clerkgrpc.Scheme+":///"+job, opts...)
	if err != nil {
		return err
	}
	defer conn.Close()
	greeter := hello.NewGreeterClient(conn)
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(time.Second / callsPerSecond)
	defer tick.Stop()
	for end := time.After(life/2 + rand.N(life)); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-end:
			return nil
		case <-tick.C:
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			defer cancel()
			key := fmt.Sprint("key-", rand.N(1000))
			c.calls.Inc()
			if _, err := greeter.SayHello(clerk.WithIdempotent(clerk.WithKey(ctx, key)), wrapperspb.String(key)); err != nil {
				c.failures.Inc()
				slog.Error("call", "job", job, "key", key, "error", err)
			}
		})
	}
}
