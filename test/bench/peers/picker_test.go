package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/balancer/ringhash"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/serviceconfig"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
)

const (
	pickSlices, pickTasks = 10_000, 100
	maxRatio              = .5
	maxAllocs             = 1
)

// stage is a balancer around another one, whose connections are made of nothing
// and ready at once, and whose newest picker can be had.
type stage struct {
	name, inner string

	mu     sync.Mutex
	picker balancer.Picker
	ready  int
}

func (s *stage) Name() string { return s.name }

func (s *stage) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	if p, ok := balancer.Get(s.inner).(balancer.ConfigParser); ok {
		return p.ParseConfig(js)
	}
	return nil, nil
}

func (s *stage) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return balancer.Get(s.inner).Build(&stageConn{ClientConn: cc, s: s}, opts)
}

type stageConn struct {
	balancer.ClientConn
	s *stage
}

func (c *stageConn) UpdateState(st balancer.State) {
	c.s.mu.Lock()
	c.s.picker = st.Picker
	c.s.mu.Unlock()
}

func (c *stageConn) NewSubConn(_ []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	return &propConn{s: c.s, listen: opts.StateListener}, nil
}

// propConn is ready when it has been told to connect.
type propConn struct {
	balancer.SubConn
	s      *stage
	listen func(balancer.SubConnState)
	once   sync.Once
}

func (p *propConn) Connect() {
	p.once.Do(func() {
		go func() {
			p.listen(balancer.SubConnState{ConnectivityState: connectivity.Connecting})
			p.listen(balancer.SubConnState{ConnectivityState: connectivity.Ready})
			p.s.mu.Lock()
			p.s.ready++
			p.s.mu.Unlock()
		}()
	})
}

func (p *propConn) Shutdown() {}

func (p *propConn) RegisterHealthListener(listen func(balancer.SubConnState)) {
	go listen(balancer.SubConnState{ConnectivityState: connectivity.Ready})
}

// settle asks for every key until all connections are ready, and returns the
// picker. Ring hash connects to a task when a key wants it.
func (s *stage) settle(tb testing.TB, all []context.Context) balancer.Picker {
	tb.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		p, ready := s.picker, s.ready
		s.mu.Unlock()
		if p == nil {
			continue
		}
		missing := 0
		for _, ctx := range all {
			if _, err := p.Pick(balancer.PickInfo{Ctx: ctx, FullMethodName: "/hello.Greeter/SayHello"}); err != nil {
				missing++
			}
		}
		if missing == 0 && ready > pickTasks*9/10 {
			return p
		}
	}
	tb.Fatal("the connections are not ready within a minute")
	return nil
}

var stages = map[string]*stage{
	"slicer":    {name: "stage_slicer", inner: "slicer"},
	"ring_hash": {name: "stage_ring_hash", inner: "ring_hash_experimental"},
}

func init() {
	for _, s := range stages {
		balancer.Register(s)
	}
}

// slicerPicker is this project's picker, fed through its resolver by a clerk.
func slicerPicker(tb testing.TB, all []context.Context) balancer.Picker {
	net := subscribertest.NewNetwork()
	server := net.Start("10.255.0.1:1")
	tb.Cleanup(server.Stop)
	server.Put(job(tb, pickSlices))
	ck, err := clerk.New(clerk.Config{Job: "job", Distributors: []string{"10.255.0.1:1"}, DialOptions: net.DialOptions()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { ck.Close() })
	return picker(tb, "slicer", "slicer:///job", `{}`, all, clerkgrpc.DialOptions(clerkgrpc.Config{Shared: ck})...)
}

// ringPicker is grpc-go's, on as many tasks.
func ringPicker(tb testing.TB, all []context.Context) balancer.Picker {
	r := manual.NewBuilderWithScheme("ring")
	var state resolver.State
	for _, t := range job(tb, pickSlices).Tasks() {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: t.Address}}})
	}
	r.InitialState(state)
	return picker(tb, "ring_hash", "ring:///job", `{"requestHashHeader": "slicer-key", "minRingSize": 4096}`, all, grpc.WithResolvers(r))
}

func picker(tb testing.TB, name, target, config string, all []context.Context, opts ...grpc.DialOption) balancer.Picker {
	tb.Helper()
	s := stages[name]
	s.mu.Lock()
	s.picker, s.ready = nil, 0
	s.mu.Unlock()
	conn, err := grpc.NewClient(target, append(opts,
		grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [{%q: %s}]}`, s.name, config)),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0))...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	conn.Connect()
	return s.settle(tb, all)
}

// contexts are those of RPCs with a deadline and a key each; wrap adds the key.
func contexts(tb testing.TB, wrap func(ctx context.Context, key string) context.Context) []context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	tb.Cleanup(cancel)
	all := make([]context.Context, 1<<14)
	for i := range all {
		all[i] = wrap(ctx, fmt.Sprintf("user/%011d", i))
	}
	return all
}

func withHeader(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "slicer-key", key)
}

// BenchmarkPick measures Pick of both, in turns, and judges the medians.
func BenchmarkPick(b *testing.B) {
	// Rounds are short, so that most of them are not interrupted.
	const rounds, picks, warm = 301, 4096, 1024
	keyed := contexts(b, clerk.WithKey)
	headed := contexts(b, withHeader)
	ours, ring := slicerPicker(b, keyed), ringPicker(b, headed)
	measure := func(p balancer.Picker, all []context.Context) (ns, allocs float64) {
		pick := func(n int) {
			for i := range n {
				if _, err := p.Pick(balancer.PickInfo{Ctx: all[i%warm], FullMethodName: "/hello.Greeter/SayHello"}); err != nil {
					b.Fatal(err)
				}
			}
		}
		// The context of an RPC has just been made.
		allocs = testing.AllocsPerRun(1, func() { pick(warm) }) / warm
		began := time.Now()
		pick(picks)
		return float64(time.Since(began).Nanoseconds()) / picks, allocs
	}
	for b.Loop() {
		var times [2][]float64
		var allocs [2]float64
		for range rounds {
			for i, p := range []balancer.Picker{ours, ring} {
				ns, n := measure(p, [][]context.Context{keyed, headed}[i])
				times[i], allocs[i] = append(times[i], ns), max(allocs[i], n)
			}
		}
		median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
		us, them := median(times[0]), median(times[1])
		b.Logf("pick with %d slices and %d tasks: %.0f ns and %.2f allocations; ring_hash %.0f ns and %.2f allocations: %.2f of its time (limit %.1f)",
			pickSlices, pickTasks, us, allocs[0], them, allocs[1], us/them, maxRatio)
		b.ReportMetric(us, "ns/pick")
		b.ReportMetric(them, "ns/ring_hash")
		b.ReportMetric(us/them, "ratio")
		if allocs[0] > maxAllocs || us > maxRatio*them {
			b.Error("a limit is missed")
		}
	}
}

// Both pickers do the same thing: they know a connection for every key, always
// the same, and the load is on many.
func TestPickersAgree(t *testing.T) {
	keyed := contexts(t, clerk.WithKey)
	headed := contexts(t, withHeader)
	a := job(t, pickSlices)
	owner := map[int]balancer.SubConn{}
	ours := slicerPicker(t, keyed)
	for i, ctx := range keyed {
		r, err := ours.Pick(balancer.PickInfo{Ctx: ctx})
		if err != nil {
			t.Fatal(err)
		}
		pos := a.Lookup(assignment.KeyOf(fmt.Sprintf("user/%011d", i))).Position(0)
		if was, ok := owner[pos]; ok && was != r.SubConn {
			t.Fatalf("key %d goes elsewhere than others of task %d", i, pos)
		}
		owner[pos] = r.SubConn
	}
	ring, conns := ringPicker(t, headed), map[balancer.SubConn]bool{}
	for _, ctx := range headed {
		r, err := ring.Pick(balancer.PickInfo{Ctx: ctx})
		if err != nil {
			t.Fatal(err)
		}
		conns[r.SubConn] = true
	}
	if len(owner) < pickTasks*9/10 || len(conns) < pickTasks/2 {
		t.Errorf("%d and %d tasks are used", len(owner), len(conns))
	}
}
