package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/boottime"
	"github.com/slicer-project/slicer/test/system/chaos/record"
)

// runClients calls until it is told to end.
func runClients(ctx context.Context, cfg Config, log *record.Log) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, name := range cfg.Names {
		c, err := newClient(cfg, name, i, log)
		if err != nil {
			return err
		}
		wg.Go(func() { c.run(ctx) })
	}
	return log.FlushUntil(ctx)
}

type client struct {
	cfg   Config
	name  string
	clerk *clerk.Clerk
	log   *record.Log
	rng   *rand.Rand
	ask   func(ctx context.Context, key string) (answer string, err error)
	close func()
}

func newClient(cfg Config, name string, i int, log *record.Log) (*client, error) {
	ck, err := clerk.New(clerk.Config{Job: cfg.Job, ClientID: name, Distributors: cfg.Distributors, Backups: cfg.Backups, Logger: slog.Default()})
	if err != nil {
		return nil, err
	}
	c := &client{cfg: cfg, name: name, clerk: ck, log: log, rng: rand.New(rand.NewPCG(cfg.Seed, uint64(i)))}
	if i%2 == 0 {
		return c, c.overHTTP()
	}
	return c, c.overGRPC()
}

func (c *client) overHTTP() error {
	t, err := clerkhttp.NewTransport(clerkhttp.Config{Clerk: c.clerk})
	if err != nil {
		return err
	}
	web := &http.Client{Transport: t}
	c.ask = func(ctx context.Context, key string) (string, error) {
		req, err := http.NewRequestWithContext(clerk.WithKey(ctx, key), http.MethodGet, "http://"+c.cfg.Job+"/", nil)
		if err != nil {
			return "", err
		}
		resp, err := web.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", resp.Status, body)
		}
		return string(body), err
	}
	c.close = func() { _ = t.Close() }
	return nil
}

// retry says that the RPCs may be carried out twice, as GET says over HTTP.
const retry = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 3, "initialBackoff": "0.05s", "maxBackoff": "0.2s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

func (c *client) overGRPC() error {
	opts := clerkgrpc.DialOptions(clerkgrpc.Config{Shared: c.clerk, ServiceConfig: retry})
	conn, err := grpc.NewClient(clerkgrpc.Scheme+":///"+c.cfg.Job, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return err
	}
	g := hello.NewGreeterClient(conn)
	c.ask = func(ctx context.Context, key string) (string, error) {
		reply, err := g.SayHello(clerk.WithKey(ctx, key), wrapperspb.String(key))
		return reply.GetValue(), err
	}
	c.close = func() { _ = conn.Close() }
	return nil
}

// run calls in an open loop: a call that takes long holds up none.
func (c *client) run(ctx context.Context) {
	defer c.clerk.Close()
	defer c.close()
	if c.clerk.Ready(ctx) != nil {
		return
	}
	tick := time.NewTicker(time.Second / time.Duration(max(c.cfg.PerSecond, 1)))
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	keys := rand.NewZipf(c.rng, 1.05, 50, uint64(c.cfg.Keys-1))
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			key := fmt.Sprintf("k%d", keys.Uint64())
			wg.Go(func() { c.call(key) })
		}
	}
}

func (c *client) call(key string) {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Timeout)
	defer cancel()
	call := &record.Call{Client: c.name, Key: key, Begin: boottime.Now()}
	if a := c.clerk.Assignment(); a != nil {
		call.Generation = a.Generation()
	}
	answer, err := c.ask(ctx, key)
	call.End = boottime.Now()
	if err == nil {
		var owned string
		call.Task, owned, _ = strings.Cut(answer, " ")
		call.Owned = owned == "true"
	} else {
		call.Err = err.Error()
	}
	c.log.Add(record.Line{Call: call})
}
