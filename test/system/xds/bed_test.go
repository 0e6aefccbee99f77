package xds

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcxds "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
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
	foreign  atomic.Int64 // calls whose key it did not own
}

func (s *server) SayHello(ctx context.Context, _ *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	if h, ok := sliceletgrpc.HandleFrom(ctx); ok && !h.Owned() {
		s.foreign.Add(1)
	}
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
	s := &server{task: task}
	var err error
	s.slicelet, err = slicelet.New(slicelet.Config{Job: job, Task: task, Address: lis.Addr().String(), Distributors: f.plane.Addrs()})
	if err != nil {
		f.t.Fatal(err)
	}
	s.grpc = grpc.NewServer(sliceletgrpc.ServerOptions(s.slicelet, sliceletgrpc.Config{})...)
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
	process.Eventually(f.t, 30*time.Second, fmt.Sprintf("%d tasks own something", tasks), func() error {
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
func (f *fleet) bootstrap(node string) []byte {
	var servers []any
	for _, addr := range f.plane.Addrs() {
		servers = append(servers, map[string]any{
			"server_uri": addr, "channel_creds": []any{map[string]any{"type": "insecure"}}, "server_features": []string{"xds_v3"},
		})
	}
	b, err := json.Marshal(map[string]any{
		"xds_servers": servers, "node": map[string]any{"id": node, "locality": map[string]any{"zone": "z"}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

// dial is a stock client of the job.
func (f *fleet) dial(node string) *grpc.ClientConn {
	f.t.Helper()
	return f.dialOf(job, node)
}

func (f *fleet) dialOf(job, node string) *grpc.ClientConn {
	f.t.Helper()
	builder, err := grpcxds.NewXDSResolverWithConfigForTesting(f.bootstrap(node))
	if err != nil {
		f.t.Fatal(err)
	}
	cc, err := grpc.NewClient("xds:///"+job, grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { cc.Close() })
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

// agrees waits until so many keys are answered by whom the newest assignment names.
func (f *fleet) agrees(cc grpc.ClientConnInterface, keys int) {
	f.t.Helper()
	process.Eventually(f.t, 30*time.Second, "keys are answered by their owners", func() error {
		before := f.newest()
		var wrong []string
		for i := range keys {
			key := fmt.Sprintf("user-%d", i)
			task, err := call(f.t.Context(), cc, key)
			if err != nil {
				f.t.Fatalf("key %s: %v", key, err)
			}
			owned := false
			for o := range before.Lookup(assignment.KeyOf(key)).All() {
				owned = owned || o.Name == task
			}
			if !owned {
				wrong = append(wrong, key+" by "+task)
			}
		}
		if f.newest() != before {
			return fmt.Errorf("the assignment has changed meanwhile")
		}
		if len(wrong) > 0 {
			return fmt.Errorf("%d of %d keys are answered elsewhere: %s", len(wrong), keys, strings.Join(wrong[:min(len(wrong), 5)], ", "))
		}
		return nil
	})
}

// inspect is what slicerctl inspect is told by a Distributor.
func (f *fleet) inspect(distributor int) (*slicerv1.InspectJobResponse, error) {
	cc, err := grpc.NewClient(f.plane.Distributors[distributor].Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
	defer cancel()
	return slicerv1.NewAdminServiceClient(cc).InspectJob(ctx, &slicerv1.InspectJobRequest{Job: job})
}
