package xds

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcxds "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/process"
)

const job = "greeter"

// fleet is a control plane and the job's servers.
type fleet struct {
	t       testing.TB
	plane   *bed.Plane
	mu      sync.Mutex
	servers map[string]*server // by task
	seen    []seen             // the assignments that were the newest, in order
}

// seen is an assignment, and when it was first seen to be the newest.
type seen struct {
	a  *assignment.Assignment
	at time.Time
}

// watch keeps what is newest until the test ends.
func (f *fleet) watch() {
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			if a := f.newest(); a != nil {
				f.mu.Lock()
				if n := len(f.seen); n == 0 || a.Newer(f.seen[n-1].a) {
					f.seen = append(f.seen, seen{a, time.Now()})
				}
				f.mu.Unlock()
			}
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	f.t.Cleanup(func() {
		close(done)
		watching.Wait()
	})
}

// server greets with its task's name.
type server struct {
	hello.UnaryGreeterServer
	task     string
	slicelet *slicelet.Slicelet
	grpc     *grpc.Server
	served   sync.WaitGroup
	calls    atomic.Int64
	metrics  *prometheus.Registry
}

func (s *server) SayHello(_ context.Context, _ *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	s.calls.Add(1)
	return wrapperspb.String(s.task), nil
}

func newFleet(t testing.TB, cfg assignment.JobConfig, tasks int) *fleet {
	t.Helper()
	f := &fleet{t: t, plane: bed.Start(t, bed.Config{Assigners: 1, Distributors: 2, Logger: logger(t)}), servers: make(map[string]*server)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg.Name = job
	if err := f.plane.PutJob(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	for i := range tasks {
		f.add(fmt.Sprintf("t%d", i))
	}
	f.settled(tasks)
	f.watch()
	return f
}

// logger keeps what is worth a warning.
func logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func (f *fleet) add(task string) *server {
	f.t.Helper()
	lis := bed.Listen(f.t)
	s := &server{task: task, metrics: prometheus.NewRegistry()}
	var err error
	s.slicelet, err = slicelet.New(slicelet.Config{
		Job: job, Task: task, Address: lis.Addr().String(), Distributors: f.plane.Addrs(), Registerer: s.metrics,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	s.grpc = grpc.NewServer(sliceletgrpc.ServerOptions(s.slicelet, sliceletgrpc.Config{Registerer: s.metrics})...)
	hello.RegisterGreeterServer(s.grpc, s)
	s.served.Go(func() { s.grpc.Serve(lis) })
	f.t.Cleanup(s.kill)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers[task] = s
	return s
}

// kill ends a server as its death would: it is silent at once.
func (s *server) kill() {
	s.grpc.Stop()
	s.slicelet.Close()
	s.served.Wait()
}

// take is a server that the fleet has no longer.
func (f *fleet) take(task string) *server {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.servers[task]
	delete(f.servers, task)
	return s
}

// kill ends a server without a word.
func (f *fleet) kill(task string) { f.take(task).kill() }

// newest is the newest assignment that any server holds.
func (f *fleet) newest() (a *assignment.Assignment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.servers {
		if b := s.slicelet.Assignment(); b != nil && b.Newer(a) {
			a = b
		}
	}
	return a
}

// settled waits until so many tasks own something.
func (f *fleet) settled(tasks int) {
	f.t.Helper()
	process.Eventually(f.t, waittest.Patience, fmt.Sprintf("%d tasks own something", tasks), func() error {
		a := f.newest()
		owners := make(map[string]bool)
		if a != nil {
			for _, r := range a.All() {
				for t := range r.All() {
					owners[t.Name] = true
				}
			}
		}
		if len(owners) != tasks {
			return fmt.Errorf("%d", len(owners))
		}
		return nil
	})
}

// bootstrap is what a client is given in a file.
func bootstrap(t testing.TB, node string, addrs []string) []byte {
	t.Helper()
	var servers []any
	for _, addr := range addrs {
		servers = append(servers, map[string]any{
			"server_uri": addr, "channel_creds": []any{map[string]any{"type": "insecure"}}, "server_features": []string{"xds_v3"},
		})
	}
	b, err := json.Marshal(map[string]any{
		"xds_servers": servers, "node": map[string]any{"id": node, "locality": map[string]any{"zone": "z"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// dial is a stock client of the job.
func (f *fleet) dial(node string) *grpc.ClientConn {
	f.t.Helper()
	return dial(f.t, job, node, f.plane.Addrs())
}

func dial(t testing.TB, job, node string, addrs []string) *grpc.ClientConn {
	t.Helper()
	builder, err := grpcxds.NewXDSResolverWithConfigForTesting(bootstrap(t, node, addrs))
	if err != nil {
		t.Fatal(err)
	}
	cc, err := grpc.NewClient("xds:///"+job, grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

// keyed is what a stock client does for each call.
func keyed(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "slicer-key", key, "slice-key", assignment.KeyOf(key).String())
}

func call(ctx context.Context, cc grpc.ClientConnInterface, key string) (task string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	r, err := hello.NewGreeterClient(cc).SayHello(keyed(ctx, key), wrapperspb.String(key))
	return r.GetValue(), err
}

// inspect is what slicerctl inspect is told by a Distributor.
func (f *fleet) inspect(distributor int) (*slicerv1.InspectJobResponse, error) {
	cc, err := grpc.NewClient(f.plane.Distributors[distributor].Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(f.t.Context(), waittest.Patience)
	defer cancel()
	return slicerv1.NewAdminServiceClient(cc).InspectJob(ctx, &slicerv1.InspectJobRequest{Job: job})
}

// since are the assignments that were the newest at a time or later.
func (f *fleet) since(at time.Time) (all []*assignment.Assignment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, s := range f.seen {
		if i+1 == len(f.seen) || f.seen[i+1].at.After(at) {
			all = append(all, s.a)
		}
	}
	return all
}

// lagging is how long a client may go by an assignment after the next has come: they are sent
// once a second at most.
const lagging = 2 * time.Second

func owns(a *assignment.Assignment, task, key string) bool {
	for o := range a.Lookup(assignment.KeyOf(key)).All() {
		if o.Name == task {
			return true
		}
	}
	return false
}

// drain ends a server as it should end.
func (f *fleet) drain(task string) {
	f.t.Helper()
	s := f.take(task)
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	if err := s.slicelet.Drain(ctx); err != nil {
		f.t.Error(err)
	}
	s.grpc.GracefulStop()
	s.kill()
}
