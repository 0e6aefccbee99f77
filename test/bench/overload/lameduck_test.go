package overload

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
)

const (
	lameClients = 20  // that send to all tasks
	lameOthers  = 100 // that have no connection to any
)

// arrivals are when each client's newest request came.
type arrivals struct {
	hello.UnaryGreeterServer
	mu   sync.Mutex
	last [lameClients]time.Time
}

func (a *arrivals) SayHello(ctx context.Context, key *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	now := time.Now()
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("client")) == 1 {
		i, _ := strconv.Atoi(md.Get("client")[0])
		a.mu.Lock()
		a.last[i] = now
		a.mu.Unlock()
	}
	return key, nil
}

// BenchmarkLameDuck drains one of three tasks, with two Distributors, and prints how long the
// clients that are connected to it go on sending it requests without a key, and how long
// it takes until those that are not connected know of it.
func BenchmarkLameDuck(b *testing.B) {
	var connected, others []time.Duration
	for range b.N {
		c, o := lameDuck(b)
		connected, others = append(connected, c...), append(others, o...)
	}
	slices.Sort(connected)
	slices.Sort(others)
	at := func(of []time.Duration, share float64) float64 {
		return float64(of[int(share*float64(len(of)-1))].Microseconds()) / 1000
	}
	b.ReportMetric(at(connected, .5), "sent-p50-ms")
	b.ReportMetric(at(connected, .9), "sent-p90-ms")
	b.ReportMetric(at(others, .5), "known-p50-ms")
	b.ReportMetric(at(others, .99), "known-p99-ms")
	b.ReportMetric(0, "ns/op")
}

func lameDuck(b *testing.B) (connected, others []time.Duration) {
	plane := bed.Start(b, bed.Config{Distributors: 2})
	cfg := assignment.JobConfig{Name: "job", MinReplicas: 2, MaxReplicas: 2}
	if err := plane.PutJob(b.Context(), cfg.WithDefaults()); err != nil {
		b.Fatal(err)
	}
	var duck *slicelet.Slicelet
	came := new(arrivals)
	for _, task := range []string{"a", "b", "c"} {
		lis := bed.Listen(b)
		s, err := slicelet.New(slicelet.Config{Job: "job", Task: task, Address: lis.Addr().String(), Distributors: plane.Addrs()})
		if err != nil {
			b.Fatal(err)
		}
		server := new(arrivals)
		if task == "a" {
			duck, server = s, came
		}
		bed.Serve(b, lis, func(r grpc.ServiceRegistrar) { hello.RegisterGreeterServer(r, server) }, s.Close, sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{})...)
	}
	ctx, stop := context.WithTimeout(b.Context(), time.Minute)
	defer stop()
	clerks := make([]*clerk.Clerk, lameOthers)
	for i := range clerks {
		ck, err := clerk.New(clerk.Config{Job: "job", Distributors: plane.Addrs()})
		if err != nil {
			b.Fatal(err)
		}
		bed.CloseAtEnd(b, ck.Close)
		clerks[i] = ck
		for changed := ck.Changed(); ck.Assignment() == nil || ck.Assignment().NumTasks() < 3; changed = ck.Changed() {
			select {
			case <-changed:
			case <-ctx.Done():
				b.Fatal("the tasks are not known")
			}
		}
	}
	sending, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i := range lameClients {
		stub := dial(b, plane, "job")
		wg.Go(func() {
			for said := metadata.AppendToOutgoingContext(sending, "client", strconv.Itoa(i)); sending.Err() == nil; time.Sleep(2 * time.Millisecond) {
				if _, err := stub.SayHello(said, wrapperspb.String("")); err != nil && sending.Err() == nil {
					b.Errorf("client %d: %v", i, err)
					return
				}
			}
		})
	}
	time.Sleep(2 * time.Second) // all tasks are connected to
	began := time.Now()
	drained := make(chan error, 1)
	go func() { drained <- duck.Drain(ctx) }()
	others = make([]time.Duration, lameOthers)
	for left := lameOthers; left > 0 && ctx.Err() == nil; time.Sleep(500 * time.Microsecond) {
		for i, ck := range clerks {
			if others[i] == 0 && knows(ck) {
				others[i] = time.Since(began)
				left--
			}
		}
	}
	if err := <-drained; err != nil {
		b.Fatal(err)
	}
	time.Sleep(time.Second)
	end()
	wg.Wait()
	for _, at := range came.last {
		connected = append(connected, max(at.Sub(began), 0))
	}
	return connected, others
}

// knows reports whether a client knows that task a is to get no requests.
func knows(ck *clerk.Clerk) bool {
	a := ck.Assignment()
	pos, ok := a.Position("a")
	return !ok || a.Task(pos).State != assignment.TaskRunning || ck.Throttle("a").Draining()
}
