package clerkgrpc

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// many tasks that run, each with a slice of its own.
func many(n int) (tasks []assignment.Task, owners [][]uint32) {
	for i := range n {
		t := subscribertest.Task(fmt.Sprintf("t%03d", i), uint32(i))
		t.Address = fmt.Sprintf("10.0.%d.%d:80", i/200, i%200+1)
		tasks, owners = append(tasks, t), append(owners, []uint32{uint32(i)})
	}
	return tasks, owners
}

// TestPool: warm connections are those of the subset; others come on demand and go
// when they are not used.
func TestPool(t *testing.T) {
	const n, size = 20, 4
	index := 0
	r := prometheus.NewRegistry()
	cfg := Config{Clerk: clerk.Config{Registerer: r, Subset: clerk.SubsetConfig{Size: size, Index: &index}}, IdleClose: time.Minute}
	run(t, cfg, func(b *bed) {
		tasks, owners := many(n)
		for _, task := range tasks {
			b.serve(task)
		}
		b.put(tasks, owners...)
		connections := func(want float64) {
			b.t.Helper()
			synctest.Wait()
			b.expect(r, map[string]float64{"slicer_clerk_connections": want})
		}
		connections(size)
		warm := slices.IndexFunc(tasks, func(t assignment.Task) bool { return b.dialsOf(t) > 0 })
		for i := range n {
			b.answers(keyOf(i, n), tasks[i].Name)
		}
		connections(n)
		// What is used stays.
		for range 8 {
			time.Sleep(20 * time.Second)
			for i := range n / 2 {
				b.answers(keyOf(i, n), tasks[i].Name)
			}
		}
		for i := range n {
			if b.dialsOf(tasks[i]) != 1 {
				b.t.Errorf("%s was dialled %d times", tasks[i].Name, b.dialsOf(tasks[i]))
			}
		}
		// The rest, and then all but the subset, goes.
		for range 6 {
			time.Sleep(20 * time.Second)
			b.answers(keyOf(warm, n), tasks[warm].Name)
		}
		connections(size)
		b.expect(r, map[string]float64{
			"slicer_clerk_connections_opened_total warm": size, "slicer_clerk_connections_opened_total on_demand": n - size,
			"slicer_clerk_connections_closed_total idle": n - size,
		})
		// And comes again.
		for i := range n {
			b.answers(keyOf(i, n), tasks[i].Name)
		}
		connections(n)
		// Tasks that are gone take their connections with them.
		b.put(tasks[:n-1], owners[:n-1]...)
		connections(n - 1)
	})
}

// counter counts a server's connections.
type counter struct{ open, ever atomic.Int64 }

func (*counter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*counter) HandleRPC(context.Context, stats.RPCStats)                         {}
func (*counter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (c *counter) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.open.Add(1)
		c.ever.Add(1)
	case *stats.ConnEnd:
		c.open.Add(-1)
	}
}

// TestInactive: a client that sends nothing closes all connections, whatever the control plane
// says meanwhile; then the first RPC connects to its owner alone, and the rest of the subset
// follows within a second.
func TestInactive(t *testing.T) {
	const n, size = 10, 6
	index := 0
	r := prometheus.NewRegistry()
	cfg := Config{Clerk: clerk.Config{Registerer: r, Subset: clerk.SubsetConfig{Size: size, Index: &index}}, IdleClose: time.Minute}
	run(t, cfg, func(b *bed) {
		tasks, owners := many(n)
		servers, counts := make([]*server, n), make([]counter, n)
		for i, task := range tasks {
			servers[i] = b.serve(task, grpc.StatsHandler(&counts[i]), grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))
		}
		b.put(tasks, owners...)
		at := func(when string, want ...int) { // servers
			b.t.Helper()
			synctest.Wait()
			var open []int
			for i := range counts {
				if n := counts[i].open.Load(); n == 1 {
					open = append(open, i)
				} else if n != 0 {
					b.t.Errorf("%s server %d has %d connections", when, i, n)
				}
			}
			if !slices.Equal(open, want) {
				b.t.Errorf("%s servers %v are connected to, want %v", when, open, want)
			}
		}
		var subset, outside []int
		for i := range counts {
			synctest.Wait()
			if counts[i].open.Load() == 1 {
				subset = append(subset, i)
			} else {
				outside = append(outside, i)
			}
		}
		if len(subset) != size {
			b.t.Fatalf("the subset is %v", subset)
		}
		at("at first", subset...)
		b.answers(keyOf(outside[0], n), tasks[outside[0]].Name)
		at("with one outside", slices.Sorted(slices.Values(append([]int{outside[0]}, subset...)))...)
		// What is sent to one task keeps the connections to the others.
		for range 10 {
			time.Sleep(30 * time.Second)
			b.answers(keyOf(subset[0], n), tasks[subset[0]].Name)
		}
		at("while one task is asked", subset...)
		// So does what is under way.
		hold := make(chan struct{})
		servers[subset[0]].mu.Lock()
		servers[subset[0]].block = hold
		servers[subset[0]].mu.Unlock()
		slow := make(chan error, 1)
		go func() {
			_, err := b.stub.SayHello(clerk.WithKey(b.t.Context(), keyOf(subset[0], n)), wrapperspb.String("n"))
			slow <- err
		}()
		time.Sleep(10 * time.Minute)
		at("while an RPC is under way", subset...)
		close(hold)
		if err := <-slow; err != nil {
			b.t.Error(err)
		}
		time.Sleep(55 * time.Second)
		at("before it is inactive", subset...)
		time.Sleep(30 * time.Second)
		at("when it is inactive")
		b.expect(r, map[string]float64{"slicer_clerk_connections": 0, "slicer_clerk_connections_closed_total inactive": size})
		b.plane.Put(subscribertest.Equal(b.t, b.last, assignment.Header{Job: jobName, StoreID: 1, Generation: 2}, tasks, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0))
		time.Sleep(time.Hour)
		at("after an hour, and with another assignment")

		began := time.Now()
		own := subset[1]
		b.answers(keyOf(9-own, n), tasks[own].Name)
		if waited := time.Since(began); waited > 0 {
			b.t.Errorf("the first RPC took %s", waited)
		}
		at("with the first RPC", own)
		time.Sleep(time.Second)
		at("a second later", subset...)
		for _, i := range subset {
			if ever := counts[i].ever.Load(); ever != 2 {
				b.t.Errorf("server %d has seen %d connections", i, ever)
			}
		}
		time.Sleep(2 * time.Minute)
		at("when it is inactive again")
		for range warmAfter {
			b.answers(keyOf(9-own, n), tasks[own].Name)
		}
		at("with as many RPCs at once", subset...)
		time.Sleep(2 * time.Minute)
		at("when it is inactive for the third time")
		b.conn.Connect()
		at("when it is told to connect", subset...)
	})
}

func (b *bed) dialsOf(t assignment.Task) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dials[t.Address]
}

// TestIdleSpares: a stream that lasts keeps going when its connection counts as
// unused.
func TestIdleSpares(t *testing.T) {
	index := 0
	run(t, Config{Clerk: clerk.Config{Subset: clerk.SubsetConfig{Size: 1, Index: &index}}, IdleClose: time.Second}, func(b *bed) {
		tasks, owners := many(3)
		release := make(chan struct{})
		for _, task := range tasks {
			b.serve(task).block = release
		}
		b.put(tasks, owners...)
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(clerk.WithKey(b.t.Context(), keyOf(i, 3)), time.Hour)
				defer cancel()
				if answer, err := b.stub.SayHello(ctx, wrapperspb.String("")); err != nil || answer.Value != tasks[i].Name {
					b.t.Errorf("%q, %v", answer.GetValue(), err)
				}
			})
		}
		time.Sleep(time.Minute)
		close(release)
		wg.Wait()
	})
}

// TestSlowReplica: of two owners one becomes two hundred times slower; it gets few RPCs from
// the first on, by the default policy.
func TestSlowReplica(t *testing.T) {
	for _, kind := range []policy.Kind{policy.WeightedLeastLoaded, policy.RoundRobin} {
		run(t, Config{Policy: kind}, func(b *bed) {
			var slow atomic.Bool
			for i, task := range three()[:2] {
				b.serve(task, grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
					if time.Sleep(2 * time.Millisecond); i == 0 && slow.Load() {
						time.Sleep(398 * time.Millisecond)
					}
					return handle(ctx, req)
				}))
			}
			b.put(three()[:2], []uint32{0, 1})
			var inTime atomic.Int64
			var wg sync.WaitGroup
			for i := range 1000 {
				slow.Store(i >= 200)
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(clerk.WithKey(b.t.Context(), "k"), 100*time.Millisecond)
					defer cancel()
					if _, err := b.ask(ctx); err == nil && i >= 200 {
						inTime.Add(1)
					}
				})
				time.Sleep(5 * time.Millisecond)
			}
			wg.Wait()
			time.Sleep(time.Second) // for handlers whose clients have gone
			if n := inTime.Load(); (n >= 760) != (kind == policy.WeightedLeastLoaded) {
				b.t.Errorf("%s: %d of 800 RPCs were answered in time", kind, n)
			}
		})
	}
}

// TestFailingReplica: of two owners one fails all at once, and neither says how loaded it is; it
// gets few RPCs soon, and as many as the other when it has recovered.
func TestFailingReplica(t *testing.T) {
	for _, kind := range []policy.Kind{policy.WeightedLeastLoaded, policy.LeastLoaded, policy.Weighted, policy.RoundRobin} {
		run(t, Config{Policy: kind}, func(b *bed) {
			var broken atomic.Bool
			var asked [2]atomic.Int64
			for i, task := range three()[:2] {
				b.serve(task, grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
					if asked[i].Add(1); i == 0 && broken.Load() {
						return nil, status.Error(codes.Internal, "broken")
					}
					return handle(ctx, req)
				}))
			}
			b.put(three()[:2], []uint32{0, 1})
			share := func(n int, every time.Duration) float64 {
				asked[0].Store(0)
				for range n {
					_, err := b.ask(clerk.WithKey(b.t.Context(), "k"))
					if err != nil && status.Code(err) != codes.Internal {
						b.t.Error(err)
					}
					time.Sleep(every)
				}
				return float64(asked[0].Load()) / float64(n)
			}
			near := func(when string, got, want float64) {
				b.t.Helper()
				if math.Abs(got-want) > .1 {
					b.t.Errorf("%s: %s: it gets %.2f of the RPCs, want about %.2f", kind, when, got, want)
				}
			}
			few := .05
			if kind == policy.RoundRobin {
				few = .5
			}
			// Of 1,000 a share's standard deviation is .016, and .1 is six of them.
			near("at first", share(1000, time.Millisecond), .5)
			broken.Store(true)
			share(500, time.Millisecond)
			near("when it has failed for half a second", share(1000, time.Millisecond), few)
			broken.Store(false)
			share(2000, 10*time.Millisecond)
			near("when it has recovered", share(1000, time.Millisecond), .5)
		})
	}
}

// TestInFlight: what tasks say of RPCs under way there, which others have sent, counts for a
// second.
func TestInFlight(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		tasks := three()[:2]
		for i, task := range tasks {
			b.serve(task, orca.CallMetricsServerOption(nil), grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
				orca.CallMetricsRecorderFromContext(ctx).SetNamedMetric(inFlightMetric, []float64{30, 2}[i])
				return handle(ctx, req)
			}))
		}
		b.put(tasks, []uint32{0, 1})
		ask := func(n int) (a int) {
			for range n {
				got, err := b.ask(clerk.WithKey(b.t.Context(), "k"))
				if err != nil {
					b.t.Error(err)
				}
				if got == "a" {
					a++
				}
			}
			return a
		}
		ask(20)
		if n := ask(200); n > 0 {
			b.t.Errorf("%d of 200 RPCs went to the task at which most are under way", n)
		}
		time.Sleep(inFlightFor + 1)
		if n := ask(200); n != 1 {
			b.t.Errorf("%d of 200 RPCs went to it when it had said nothing for long", n)
		}
	})
}

func TestLeastLoaded(t *testing.T) {
	run(t, Config{Policy: policy.LeastLoaded}, func(b *bed) {
		tasks, servers := b.serveThree()
		b.put(tasks, []uint32{0, 1})
		ctx := clerk.WithKey(b.t.Context(), "k")
		if _, err := b.ask(ctx); err != nil {
			b.t.Fatal(err)
		}
		synctest.Wait()
		// One is stuck: what comes goes to the other.
		stuck := make(chan struct{})
		servers[0].mu.Lock()
		servers[0].block = stuck
		servers[0].mu.Unlock()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { _, _ = b.ask(ctx) })
			synctest.Wait()
		}
		if n := servers[0].count(); n > 3 {
			b.t.Errorf("%d RPCs went to the one that is stuck", n)
		}
		close(stuck)
		wg.Wait()
		// Nothing is left of it.
		servers[0].mu.Lock()
		servers[0].block = nil
		servers[0].mu.Unlock()
		before := servers[0].count()
		for range 200 {
			if _, err := b.ask(ctx); err != nil {
				b.t.Error(err)
			}
		}
		if n := servers[0].count() - before; n < 60 || n > 140 {
			b.t.Errorf("%d of 200 RPCs went to one of two", n)
		}
	})
}

// TestWeighted: tasks that report half the utilization get twice the RPCs.
func TestWeighted(t *testing.T) {
	run(t, Config{Policy: policy.Weighted}, func(b *bed) {
		tasks := three()[:2]
		for i, task := range tasks {
			m := orca.NewServerMetricsRecorder()
			m.SetQPS(100)
			m.SetApplicationUtilization([]float64{.25, .5}[i])
			b.serve(task, orca.CallMetricsServerOption(m), grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
				orca.CallMetricsRecorderFromContext(ctx)
				return handle(ctx, req)
			}))
		}
		b.put(tasks, []uint32{0, 1})
		const asked = 2000 // a share's standard deviation is .011, and .08 is seven of them
		share := func(n int) float64 {
			a := 0.
			for range n {
				got, err := b.ask(clerk.WithKey(b.t.Context(), "k"))
				if err != nil {
					b.t.Error(err)
				}
				if got == "a" {
					a++
				}
			}
			return a / float64(n)
		}
		if s := share(asked); s < .42 || s > .58 {
			b.t.Errorf("share %.2f before anything is known for long", s)
		}
		time.Sleep(policy.Blackout)
		share(50)
		if s := share(asked); s < .59 || s > .74 {
			b.t.Errorf("share %.2f, want 2/3", s)
		}
		time.Sleep(policy.Expiry + DefaultIdleClose)
		share(1) // it was inactive
		time.Sleep(time.Second)
		if s := share(asked); s < .42 || s > .58 {
			b.t.Errorf("share %.2f when all reports are old", s)
		}
	})
}
