package clerkgrpc

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// perSecond is a server that can do so much.
func perSecond(n float64) func() bool {
	room, at := 1., time.Now()
	return func() bool {
		now := time.Now()
		room, at = min(room+n*now.Sub(at).Seconds(), 3), now
		if room < 1 {
			return false
		}
		room--
		return true
	}
}

// flood has a customer ask 200 times a second. Of the servers' answers it returns how
// many they refused and served, and how many RPCs failed at all.
func (b *bed) flood(over time.Duration, key, customer string, servers ...*server) (refused, served, failed int) {
	before := 0
	for _, s := range servers {
		before += s.count()
	}
	ctx := clerk.WithKey(overload.WithCustomer(b.t.Context(), customer), key)
	for range int(over / (5 * time.Millisecond)) {
		time.Sleep(5 * time.Millisecond)
		if _, err := b.ask(ctx); err == nil {
			served++
		} else {
			b.fails(err, codes.ResourceExhausted, "no room")
			failed++
		}
	}
	for _, s := range servers {
		refused += s.count()
	}
	return refused - before - served, served, failed
}

// TestStockServer: a gRPC server that does not know Slicer, at ten times what it can do,
// refuses about one RPC for each that it serves, and not nine; another customer loses nothing,
// and within 3 s after the flood all is served.
func TestStockServer(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		tasks := three()
		s := b.serve(tasks[0])
		b.put(tasks, []uint32{0})
		room := perSecond(20)
		s.stock = room
		b.flood(10*time.Second, "k", "flood", s)
		refused, served, _ := b.flood(10*time.Second, "k", "flood", s)
		if served < 180 || refused > served*13/10 {
			t.Errorf("%d were served, and %d refused", served, refused)
		}
		s.stock = nil
		if _, served, _ := b.flood(time.Second, "k", "mail", s); served != 200 {
			t.Errorf("another customer is served %d times of 200", served)
		}
		s.stock = room
		b.flood(10*time.Second, "k", "flood", s)
		s.stock = nil
		b.flood(3*time.Second, "k", "flood", s)
		if _, served, _ := b.flood(time.Second, "k", "flood", s); served != 200 {
			t.Errorf("%d of 200 are served when there is room", served)
		}
	})
}

// TestStockOwners: of three owners, of which one refuses all, or two thirds of what it would
// get, the others are asked; those that fail are those by which the client finds out.
func TestStockOwners(t *testing.T) {
	for _, accepts := range []float64{0, 20} {
		run(t, Config{}, func(b *bed) {
			tasks, servers := b.serveThree()
			b.put(tasks, []uint32{0, 1, 2})
			servers[0].stock = perSecond(accepts)
			b.flood(5*time.Second, "k", "", servers...)
			before := servers[0].count()
			refused, _, failed := b.flood(10*time.Second, "k", "", servers...)
			if got := servers[0].count() - before; failed != refused || failed > 40 || got < 2 {
				t.Errorf("accepts %g: of 2000 %d failed, of which the servers have refused %d; the one that refuses was sent %d", accepts, failed, refused, got)
			}
			servers[0].stock = nil
			b.flood(10*time.Second, "k", "", servers...)
			before = servers[0].count()
			if b.flood(20*time.Second, "k", "", servers...); servers[0].count()-before < 4000/5 {
				t.Errorf("accepts %g: ten seconds after it has room again it is sent %d of 4000", accepts, servers[0].count()-before)
			}
		})
	}
}

// TestStockNotItsOwn: what a client finds by itself is no refusal, be it that a message is too
// large.
func TestStockNotItsOwn(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		tasks := three()
		s := b.serve(tasks[0], grpc.MaxRecvMsgSize(100))
		b.put(tasks, []uint32{0})
		ctx := clerk.WithKey(b.t.Context(), "k")
		for _, opt := range []grpc.CallOption{grpc.MaxCallSendMsgSize(10), grpc.MaxCallSendMsgSize(1 << 20)} {
			for range 50 {
				_, err := b.stub.SayHello(ctx, wrapperspb.String(string(make([]byte, 200))), opt)
				b.fails(err, codes.ResourceExhausted, "larger than max")
			}
		}
		for range 50 {
			_, err := b.stub.SayHello(ctx, wrapperspb.String("x"), grpc.MaxCallRecvMsgSize(1))
			b.fails(err, codes.ResourceExhausted, "larger than max")
		}
		if b.answers("k", "a"); s.count() != 51 {
			t.Errorf("%d RPCs were handled", s.count())
		}
	})
}

// TestStockUnanswered: an error before anything came from the task is not its refusal.
func TestStockUnanswered(t *testing.T) {
	ck, err := clerk.New(clerk.Config{Job: jobName, Distributors: []string{distributor}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	c := &conn{throttle: ck.Throttle("a")}
	c.measure(policy.RoundRobin)
	for _, answered := range []bool{false, true} {
		c.done(balancer.DoneInfo{Err: status.Error(codes.ResourceExhausted, "no room"), BytesReceived: answered})
		if c.throttle.Watched() != answered {
			t.Errorf("answered: %v, it is taken for a refusal: %v", answered, c.throttle.Watched())
		}
	}
}

// TestMaxOutstanding: owners with as many RPCs as they may have are not chosen; where all have
// so many an RPC fails at once, also one that would wait, and a stream counts until it ends.
func TestMaxOutstanding(t *testing.T) {
	for _, kind := range []policy.Kind{policy.WeightedLeastLoaded, policy.RoundRobin} {
		run(t, Config{Clerk: clerk.Config{MaxOutstanding: 2}, Policy: kind, Keyless: AnyTask}, func(b *bed) {
			tasks, servers := b.serveThree()
			b.put(tasks, []uint32{0, 1, 2})
			for _, ctx := range []context.Context{clerk.WithKey(b.t.Context(), "k"), b.t.Context()} {
				b.ask(ctx) // connects
				block := make(chan struct{})
				before := make([]int, len(servers))
				for i, s := range servers {
					s.blocks(block)
					before[i] = s.count()
				}
				var wg sync.WaitGroup
				for range 6 {
					wg.Go(func() {
						if _, err := b.ask(ctx); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait() // or two may choose the same last place
				}
				for i, s := range servers {
					if n := s.count() - before[i]; n != 2 {
						t.Errorf("%s: %s was sent %d of 6", kind, s.name, n)
					}
				}
				at := time.Now()
				_, err := b.stub.SayHello(ctx, wrapperspb.String("x"), grpc.WaitForReady(true))
				b.fails(err, codes.ResourceExhausted, "no room")
				if time.Since(at) > 0 {
					t.Error("it has waited")
				}
				close(block)
				wg.Wait()
			}
			// Streams, whose clients go.
			ctx, cancel := context.WithCancel(clerk.WithKey(b.t.Context(), "k"))
			for range 6 {
				if _, err := b.stub.SayHellos(ctx, wrapperspb.String("x")); err != nil {
					t.Error(err)
				}
			}
			synctest.Wait()
			_, err := b.ask(clerk.WithKey(b.t.Context(), "k"))
			b.fails(err, codes.ResourceExhausted, "no room")
			cancel()
			synctest.Wait()
			for range 20 {
				if _, err := b.ask(clerk.WithKey(b.t.Context(), "k")); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
