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

// BenchmarkThreeLayers asks the first of three layers, each of which has a task of our own with
// admission, for three times what the last one can do, and says how often the last one is sent a
// request for each that came from outside, of which 1.2 is the most, and what it serves in time of
// what it can, of which .85 is the least. Beside it, layers without admission. The last one is a server
// on a core of its own, the others share the load's process.
//
//	go test ./test/bench/overload -run '^$' -bench ThreeLayers -benchtime 1x -phase 30s -rounds 3
func BenchmarkThreeLayers(b *testing.B) {
	onecore.Apart(b)
	plane := bed.Start(b, bed.Config{})
	const takes = 2 * time.Millisecond
	kinds := []struct {
		name      string
		admission assignment.Admission
		bars      []bar
	}{
		{"ours", assignment.AdmissionOn, []bar{{"attempts", 0, 1.2}, {"served/can", .85, 0}}},
		{"without", assignment.AdmissionReport, nil},
	}
	all := make([]measured, len(kinds))
	for round := range *rounds {
		for i, k := range kinds {
			b.Run("layers="+k.name, func(b *testing.B) {
				job := func(layer string) assignment.JobConfig {
					return assignment.JobConfig{Name: fmt.Sprint(k.name, "-", layer, "-", round), Overload: assignment.OverloadConfig{Admission: k.admission}}
				}
				last := startFleet(b, 1, spec{Burns: takes}, plane, job("last"))
				sent := new(wire)
				stub := dial(b, plane, last.job, grpc.WithStatsHandler(sent))
				can := last.can(b, load{stubs: []hello.GreeterClient{stub}, key: anyKey, mixed: true}, &all[i], takes)
				for _, name := range []string{"middle", "first"} {
					cfg := job(name)
					if err := plane.PutJob(b.Context(), cfg.WithDefaults()); err != nil {
						b.Fatal(err)
					}
					serve(b, plane, cfg.Name, "task", &layer{next: stub, blind: 1})
					awaitReplicas(b, plane, cfg.Name, 1, 1)
					stub = dial(b, plane, cfg.Name)
				}
				l := load{stubs: []hello.GreeterClient{stub}, key: anyKey, mixed: true}
				used, before := last.using(b, &all[i]), sent.attempts.Load()
				s := l.offer(uint64(round), 3*can, *phase).sum(0)
				used()
				all[i].add(b, "attempts", float64(sent.attempts.Load()-before)/float64(s.offered))
				all[i].add(b, "served/can", float64(s.served)/(can*phase.Seconds()))
				all[i].addLate(b, s)
				last.stop()
			})
		}
	}
	for i, k := range kinds {
		all[i].judge(b, "layers="+k.name, k.bars...)
	}
}

// serve starts a task of a layer.
func serve(t testing.TB, plane *bed.Plane, job, task string, l *layer) {
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

func dial(t testing.TB, plane *bed.Plane, job string, more ...grpc.DialOption) hello.GreeterClient {
	t.Helper()
	opts := clerkgrpc.DialOptions(clerkgrpc.Config{Clerk: clerk.Config{Distributors: plane.Addrs()}, Keyless: clerkgrpc.AnyTask})
	conn, err := grpc.NewClient("slicer:///"+job, append(append(opts, more...), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	bed.CloseAtEnd(t, conn.Close)
	return hello.NewGreeterClient(conn)
}
