package clerkgrpc

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// fakeConn is a gRPC channel whose connections are made of nothing.
type fakeConn struct {
	balancer.ClientConn
	state balancer.State
}

func (f *fakeConn) UpdateState(s balancer.State) { f.state = s }

func (f *fakeConn) NewSubConn(_ []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	return &fakeSubConn{listen: opts.StateListener}, nil
}

type fakeSubConn struct {
	balancer.SubConn
	listen func(balancer.SubConnState)
}

func (*fakeSubConn) Connect()  {}
func (*fakeSubConn) Shutdown() {}

// newBalancer is one whose connections are all ready.
func newBalancer(tb testing.TB, kind policy.Kind, slices, n, replicas int) (*keyBalancer, *fakeConn) {
	tb.Helper()
	net := subscribertest.NewNetwork()
	server := net.Start(distributor)
	tb.Cleanup(server.Stop)
	tasks, _ := many(n)
	p := assignment.Placement{}
	for i, start := range assignment.Equal(slices) {
		var owners []uint32
		for j := range replicas {
			owners = append(owners, uint32((i+j)%n))
		}
		p.Add(start, owners...)
	}
	a, err := assignment.Successor(nil, assignment.Header{Job: jobName, StoreID: 1, Generation: 1}, tasks, p)
	if err != nil {
		tb.Fatal(err)
	}
	server.Put(a)
	ck, err := clerk.New(clerk.Config{Job: jobName, Distributors: []string{distributor}, DialOptions: net.DialOptions()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { ck.Close() })
	if err := ck.Ready(context.Background()); err != nil {
		tb.Fatal(err)
	}
	cc := &fakeConn{}
	b := builder{}.Build(cc, balancer.BuildOptions{}).(*keyBalancer)
	tb.Cleanup(b.Close)
	n0 := &clerkState{source: newSource(Config{Shared: ck, Policy: kind}), job: &job{clerk: ck, tally: newTally()}, subset: ck.Subset()}
	if err := b.UpdateClientConnState(balancer.ClientConnState{ResolverState: resolver.State{Attributes: attributes.New(clerkStateKey{}, n0)}}); err != nil {
		tb.Fatal(err)
	}
	for _, e := range b.table.entries {
		e.conn.sub.sc.(*fakeSubConn).listen(balancer.SubConnState{ConnectivityState: connectivity.Ready})
	}
	if cc.state.ConnectivityState != connectivity.Ready {
		tb.Fatalf("state %v", cc.state.ConnectivityState)
	}
	return b, cc
}

// TestPickDoesNotAllocate, by any policy, with the interceptors and without.
func TestPickDoesNotAllocate(t *testing.T) {
	for _, kind := range []policy.Kind{policy.RoundRobin, policy.LeastLoaded, policy.Weighted} {
		_, cc := newBalancer(t, kind, 30, 10, 3)
		for _, ctx := range []context.Context{
			clerk.WithKey(context.Background(), "k"),
			&routed{Context: context.Background(), route: route{key: "k", hash: assignment.KeyOf("k"), keyed: true}},
		} {
			if n := testing.AllocsPerRun(100, func() {
				if _, err := cc.state.Picker.Pick(balancer.PickInfo{Ctx: ctx}); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%s: %v allocations", kind, n)
			}
		}
	}
}

// TestTurns: two slices that are asked for in turn do not take each other's turns.
func TestTurns(t *testing.T) {
	b, cc := newBalancer(t, policy.RoundRobin, 2, 4, 2)
	seen := map[string]int{}
	names := map[balancer.SubConn]string{}
	for _, e := range b.table.entries {
		names[e.conn.sub.sc] = e.conn.task.Name
	}
	for i := range 100 {
		r, err := cc.state.Picker.Pick(balancer.PickInfo{Ctx: clerk.WithKey(context.Background(), keyOf(i%2, 2))})
		if err != nil {
			t.Fatal(err)
		}
		seen[names[r.SubConn]]++
	}
	if seen["t000"] != 25 || seen["t001"] != 50 || seen["t002"] != 25 {
		t.Errorf("turns %v", seen)
	}
}

// TestOtherResolver: without this package's resolver there is an error, not a crash.
func TestOtherResolver(t *testing.T) {
	cc := &fakeConn{}
	b := builder{}.Build(cc, balancer.BuildOptions{})
	defer b.Close()
	b.ResolverError(fmt.Errorf("no such host"))
	if _, err := cc.state.Picker.Pick(balancer.PickInfo{Ctx: t.Context()}); err == nil || !contains(err.Error(), "no such host") {
		t.Error(err)
	}
	if err := b.UpdateClientConnState(balancer.ClientConnState{}); err == nil {
		t.Error("no error")
	}
	if _, err := cc.state.Picker.Pick(balancer.PickInfo{Ctx: t.Context()}); err == nil || !contains(err.Error(), "slicer resolver") {
		t.Error(err)
	}
}

// BenchmarkPick is beside grpc-go's ring_hash in test/bench/peers.
func BenchmarkPick(b *testing.B) {
	for _, replicas := range []int{1, 3} {
		for _, kind := range []policy.Kind{policy.RoundRobin, policy.LeastLoaded} {
			b.Run(fmt.Sprintf("%s/replicas=%d", kind, replicas), func(b *testing.B) {
				_, cc := newBalancer(b, kind, 10_000, 1000, replicas)
				ctx := make([]context.Context, 1<<10)
				for i := range ctx {
					ctx[i] = clerk.WithKey(context.Background(), fmt.Sprintf("user/%d", i))
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					i++
					r, err := cc.state.Picker.Pick(balancer.PickInfo{Ctx: ctx[i&(len(ctx)-1)]})
					if err != nil {
						b.Fatal(err)
					}
					if r.Done != nil {
						r.Done(balancer.DoneInfo{})
					}
				}
			})
		}
	}
}
