package overload

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/onecore"
)

func TestMain(m *testing.M) {
	onecore.Serve(servers)
	goleak.VerifyTestMain(m)
}

const (
	tasks    = 3 // of each layer, which own every key
	requests = 2000
	callers  = 16
)

// layer is a server that asks the next layer, or one of the last, which has room for a
// tenth.
type layer struct {
	hello.UnaryGreeterServer
	next  hello.GreeterClient
	blind int // so often it asks, whatever the answer
	asked *atomic.Int64
}

func (l *layer) SayHello(ctx context.Context, key *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	if l.next == nil {
		if l.asked.Add(1)%10 != 0 {
			return nil, sliceletgrpc.Overloaded(ctx)
		}
		return key, nil
	}
	return ask(ctx, l.next, key.GetValue(), l.blind)
}

// ask asks until there is an answer, so many times at most.
func ask(ctx context.Context, stub hello.GreeterClient, key string, times int) (answer *wrapperspb.StringValue, err error) {
	for range times {
		if answer, err = stub.SayHello(clerk.WithKey(ctx, key), wrapperspb.String(key)); err == nil {
			break
		}
	}
	return answer, err
}

// TestThreeLayers: servers that are clients of servers that are clients of servers without
// room. Each layer retries, and yet the last is sent little more than there were requests,
// since only the layer just above it does so, within its budget, and stops when it is told.
// Beside it, layers that try three times whatever they are told.
func TestThreeLayers(t *testing.T) {
	for _, c := range []struct {
		name        string
		blind       int
		least, most float64 // attempts at the last layer for each request from outside
	}{
		{"budgets", 1, 1, 1.2},
		{"three blind attempts", 3, 5, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			plane := bed.Start(t, bed.Config{})
			var asked atomic.Int64
			var next hello.GreeterClient
			for i := range 3 {
				job := fmt.Sprint("layer-", i)
				// Handlers alone refuse: a machine that is too slow for all layers would have the
				// first one refuse what is to be counted at the last.
				cfg := assignment.JobConfig{Name: job, MinReplicas: tasks, MaxReplicas: tasks, Balance: assignment.BalanceConfig{Interval: time.Hour},
					Overload: assignment.OverloadConfig{Admission: assignment.AdmissionReport}}
				if err := plane.PutJob(t.Context(), cfg.WithDefaults()); err != nil {
					t.Fatal(err)
				}
				for task := range tasks {
					serve(t, plane, job, fmt.Sprint("task-", task), &layer{next: next, blind: c.blind, asked: &asked})
				}
				next = client(t, plane, job)
			}
			if _, err := ask(t.Context(), next, "first", 1); err != nil && status.Code(err) != codes.ResourceExhausted {
				t.Fatal(err)
			}
			asked.Store(0)
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					for n := i; n < requests; n += callers {
						if _, err := ask(t.Context(), next, fmt.Sprint("key-", n), c.blind); err != nil && status.Code(err) != codes.ResourceExhausted {
							t.Errorf("request %d: %v", n, err)
						}
					}
				})
			}
			wg.Wait()
			attempts := float64(asked.Load()) / requests
			t.Logf("%.3f attempts at the last layer for each request", attempts)
			if attempts < c.least || attempts > c.most {
				t.Errorf("%.3f attempts for each request, want %.1f to %.1f", attempts, c.least, c.most)
			}
		})
	}
}

// serve starts a task and waits until it owns all keys.
func serve(t *testing.T, plane *bed.Plane, job, task string, l *layer) {
	t.Helper()
	lis := bed.Listen(t)
	s, err := slicelet.New(slicelet.Config{Job: job, Task: task, Address: lis.Addr().String(), Distributors: plane.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	bed.Serve(t, lis, func(r grpc.ServiceRegistrar) { hello.RegisterGreeterServer(r, l) }, s.Close, sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{})...)
}

// client waits until all tasks own all keys.
func client(t testing.TB, plane *bed.Plane, job string) hello.GreeterClient {
	t.Helper()
	awaitReplicas(t, plane, job, tasks, tasks)
	return dial(t, plane, job)
}

func dial(t testing.TB, plane *bed.Plane, job string) hello.GreeterClient {
	t.Helper()
	opts := clerkgrpc.DialOptions(clerkgrpc.Config{Clerk: clerk.Config{Distributors: plane.Addrs()}, Keyless: clerkgrpc.AnyTask})
	conn, err := grpc.NewClient("slicer:///"+job, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	bed.CloseAtEnd(t, conn.Close)
	return hello.NewGreeterClient(conn)
}
