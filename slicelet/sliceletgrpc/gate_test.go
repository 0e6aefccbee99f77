package sliceletgrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/loadbalance/policy"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

const distributor = "10.255.0.1:1"

// bed is a server of a job, its control plane and a client, in a bubble of virtual
// time. Of the keyspace the task a owns the first half and b the other.
type bed struct {
	t        *testing.T
	plane    *subscribertest.Server
	slicelet *slicelet.Slicelet
	server   *grpc.Server
	service  *service
	health   *health.Server
	stub     hello.GreeterClient
	conn     *grpc.ClientConn
	ended    chan struct{}
}

// service notes the handle of each RPC, and may keep RPCs waiting.
type service struct {
	hello.Greeter
	owned, keyed bool
	block        chan struct{}
	look         func(context.Context) // may be nil
	fails        codes.Code            // what SayHello ends with
	full         bool                  // it has no room
	labels       overload.Labels
	pressure     float64
}

func (s *service) SayHello(ctx context.Context, name *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	h, ok := HandleFrom(ctx)
	s.owned, s.keyed, s.labels = h.Owned(), ok, overload.LabelsOf(ctx)
	s.pressure = overload.Pressure(ctx)
	if s.look != nil {
		s.look(ctx)
	}
	if s.block != nil {
		<-s.block
	}
	work(name)
	if name.GetValue() == "fail" {
		return nil, status.Error(codes.NotFound, "no such name")
	}
	if s.full {
		return nil, Overloaded(ctx)
	}
	if s.fails != codes.OK {
		return nil, status.Error(s.fails, "as told")
	}
	return name, nil
}

func (s *service) SayHellos(name *wrapperspb.StringValue, stream grpc.ServerStreamingServer[wrapperspb.StringValue]) error {
	h, ok := HandleFrom(stream.Context())
	s.owned, s.keyed, s.labels = h.Owned(), ok, overload.LabelsOf(stream.Context())
	work(name)
	return s.Greeter.SayHellos(name, stream)
}

// work takes as long as a name says that is a duration.
func work(name *wrapperspb.StringValue) {
	if d, err := time.ParseDuration(name.GetValue()); err == nil {
		time.Sleep(d)
	}
}

func run(t *testing.T, cfg Config, test func(b *bed)) {
	t.Helper()
	runWith(t, cfg, func(*slicelet.Config) {}, test)
}

// runWith has change make the slicelet's config another.
func runWith(t *testing.T, cfg Config, change func(*slicelet.Config), test func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		b := &bed{t: t, plane: n.Start(distributor), service: &service{}, health: health.NewServer(), ended: make(chan struct{})}
		defer b.plane.Stop()
		var err error
		c := slicelet.Config{Job: "job", Task: "a", Address: "10.0.0.1:80", Distributors: []string{distributor}, DialOptions: n.DialOptions()}
		change(&c)
		b.slicelet, err = slicelet.New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer b.slicelet.Close()
		b.server = grpc.NewServer(ServerOptions(b.slicelet, cfg)...)
		hello.RegisterGreeterServer(b.server, b.service)
		healthv1.RegisterHealthServer(b.server, b.health)
		lis := bufconn.Listen(1 << 16)
		go func() {
			defer close(b.ended)
			_ = b.server.Serve(lis)
		}()
		b.conn, err = grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		b.stub = hello.NewGreeterClient(b.conn)
		defer func() {
			b.conn.Close()
			b.server.Stop()
			<-b.ended
			synctest.Wait()
		}()
		test(b)
	})
}

// assign gives the task under test, as the control plane has heard of it, the
// first half.
func (b *bed) assign(g assignment.Generation, owners ...uint32) {
	b.t.Helper()
	synctest.Wait()
	a, other := subscribertest.Task("a", 0), subscribertest.Task("b", 1)
	for _, m := range b.plane.Heard() {
		if task := m.GetHello().GetTask(); task != nil {
			a.Incarnation, a.Address = task.GetIncarnation(), task.GetAddress()
		}
	}
	b.plane.Put(subscribertest.Equal(b.t, nil, assignment.Header{Job: "job", StoreID: 1, Generation: g}, []assignment.Task{a, other}, owners...))
	synctest.Wait()
}

// keyOf finds a key in the first or the second half of the keyspace.
func keyOf(half int) string {
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		if int(assignment.KeyOf(key)>>62) == half {
			return key
		}
	}
	panic("no key")
}

func (b *bed) with(pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(b.t.Context(), pairs...)
}

func (b *bed) ask(ctx context.Context, name string, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := b.stub.SayHello(ctx, wrapperspb.String(name), opts...)
	return err
}

func (b *bed) watch(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := b.stub.SayHellos(ctx, wrapperspb.String(name))
	if err != nil {
		return err
	}
	for {
		if _, err := s.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// saw checks what the handler saw of the last RPC.
func (b *bed) saw(err error, keyed, owned bool) {
	b.t.Helper()
	if err != nil || b.service.keyed != keyed || b.service.owned != owned {
		b.t.Errorf("%v; keyed %v, owned %v, want %v and %v", err, b.service.keyed, b.service.owned, keyed, owned)
	}
}

// TestKeyForms: the key is the same in whatever form it comes.
func TestKeyForms(t *testing.T) {
	run(t, Config{}, func(b *bed) {
		b.assign(5, 0, 1)
		for _, mine := range []bool{true, false} {
			for i, form := range []string{"Grüße %d", "50%%25 %d", "a key %d", "\x00\xff%d", "k%d"} {
				key := ""
				for n := 0; key == "" || b.slicelet.Handle(key).Owned() != mine; n++ {
					key = fmt.Sprintf(form, n)
				}
				b.saw(b.ask(b.with(KeyHeader, httpkey.EncodeKey(key)), "x"), true, mine)
				b.saw(b.ask(b.with(KeyHeader+"-bin", key), "x"), true, mine)
				if i == 2 || i == 4 {
					b.saw(b.ask(b.with(KeyHeader, key), "x"), true, mine)
				}
			}
		}
		// What is no encoding is the key itself.
		key := ""
		for n := 0; key == "" || !b.slicelet.Handle(key).Owned(); n++ {
			key = fmt.Sprintf("%d %%zz", n)
		}
		b.saw(b.ask(b.with(KeyHeader, key), "x"), true, true)
	})
	// A header of the user's own is taken as it is.
	run(t, Config{Header: "x-user"}, func(b *bed) {
		b.assign(5, 0, 1)
		key := ""
		for n := 0; key == "" || !b.slicelet.Handle(key).Owned(); n++ {
			key = fmt.Sprintf("%d%%25", n)
		}
		b.saw(b.ask(b.with("x-user", key), "x"), true, true)
	})
}

// sliceKeyOf is the text of the slice key of a key in the first or the second half.
func sliceKeyOf(half int) string { return assignment.KeyOf(keyOf(half)).String() }

// TestSliceKey: the slice key that a stock client is routed by is a key: counted,
// metered, and refused in consistent mode.
func TestSliceKey(t *testing.T) {
	r := prometheus.NewRegistry()
	run(t, Config{Registerer: r, RequireKey: true}, func(b *bed) {
		b.assign(5, 0, 1)
		b.saw(b.ask(b.with(SliceKeyHeader, sliceKeyOf(0)), "x"), true, true)
		b.saw(b.watch(b.with(SliceKeyHeader, sliceKeyOf(0)), "x"), true, true)
		b.saw(b.ask(b.with(SliceKeyHeader, sliceKeyOf(1)), "x"), true, false)
		b.saw(b.ask(b.with(SliceKeyHeader, "0000000000000000"), "x"), true, true)
		b.saw(b.ask(b.with(SliceKeyHeader, "7fffffffffffffff"), "x"), true, false)
		// The key itself comes before what a client has made of it.
		b.saw(b.ask(b.with(SliceKeyHeader, sliceKeyOf(1), KeyHeader, keyOf(0)), "x"), true, true)
		want := `
# HELP slicer_sliceletgrpc_misrouted_total RPCs for keys that the task does not own, by whether the client's assignment is older or newer than the task's, and by what became of them.
# TYPE slicer_sliceletgrpc_misrouted_total counter
slicer_sliceletgrpc_misrouted_total{result="served",route="unknown"} 2
`
		if err := testutil.GatherAndCompare(r, strings.NewReader(want), "slicer_sliceletgrpc_misrouted_total"); err != nil {
			b.t.Error(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		sum, hot := 0., map[uint64]bool{}
		for _, m := range b.plane.Heard() {
			load := m.GetReport().GetLoad()
			sum += float64(load.GetTotalRate()) * load.GetWindowSeconds()
			for _, k := range load.GetHotKey() {
				hot[k] = true
			}
		}
		if int(sum+.5) != 6 || !hot[uint64(assignment.KeyOf(keyOf(0)))] {
			b.t.Errorf("%v requests were reported, of hot keys %v", sum, hot)
		}
		uuid := "a987fbc9-4bed-3078-cf07-9141ba07c9f3"
		for _, bad := range []string{
			"", "user-42", uuid, strings.ToUpper(sliceKeyOf(0)) + "A", "1CBF4E9D3B57BE40", "0x1cbf4e9d3b57be", "1cbf4e9d3b57be4", "1cbf4e9d3b57be400",
			"2071511240393571904", "8000000000000000", "ffffffffffffffff", "+1cbf4e9d3b57be4", strings.Repeat("0", 513), strings.Repeat("1cbf4e9d3b57be40", 1000),
		} {
			for _, err := range []error{b.ask(b.with(SliceKeyHeader, bad), "x"), b.watch(b.with(SliceKeyHeader, bad), "x")} {
				text := status.Convert(err).Message()
				if status.Code(err) != codes.InvalidArgument || len(text) > 400 || !strings.Contains(text, `metadata "slice-key": `) ||
					!strings.Contains(text, "16 lower-case hex digits") || !strings.Contains(text, bad[:min(len(bad), 40)]) {
					b.t.Errorf("%.40q: %v", bad, err)
				}
			}
		}
		if err := b.ask(b.with(SliceKeyHeader, sliceKeyOf(0), SliceKeyHeader, sliceKeyOf(1)), "x"); status.Code(err) != codes.InvalidArgument {
			b.t.Errorf("two of them: %v", err)
		}
	})
	run(t, Config{}, func(b *bed) {
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_CONSISTENT})
		b.assign(5, 0, 1)
		b.refused(b.ask(b.with(SliceKeyHeader, sliceKeyOf(1)), "x"))
		b.refused(b.watch(b.with(SliceKeyHeader, sliceKeyOf(1)), "x"))
	})
	// Another name, or none.
	run(t, Config{SliceKey: "X-Shard"}, func(b *bed) {
		b.assign(5, 0, 1)
		b.saw(b.ask(b.with("x-shard", sliceKeyOf(0)), "x"), true, true)
		b.saw(b.ask(b.with(SliceKeyHeader, "what it likes"), "x"), false, false)
	})
	run(t, Config{SliceKey: "-"}, func(b *bed) {
		b.assign(5, 0, 1)
		b.saw(b.ask(b.with(SliceKeyHeader, sliceKeyOf(0)), "x"), false, false)
	})
}

// TestGenerationTold: a unary RPC that does not say by which generation it was routed was so by the one
// that the one before on its connection says; streams say it themselves.
func TestGenerationTold(t *testing.T) {
	r := prometheus.NewRegistry()
	run(t, Config{Registerer: r}, func(b *bed) {
		b.assign(5, 0, 1)
		for _, generation := range []string{"", "4", "", "6", "", "", "nothing", ""} {
			ctx := b.with(KeyHeader, keyOf(0))
			if generation != "" { // one for a key that the task owns says it, too
				b.saw(b.ask(metadata.AppendToOutgoingContext(ctx, GenerationHeader, generation), "x"), true, true)
				continue
			}
			b.saw(b.ask(b.with(KeyHeader, keyOf(1)), "x"), true, false)
		}
		b.saw(b.watch(b.with(KeyHeader, keyOf(1), GenerationHeader, "5"), "x"), true, false)
		b.saw(b.ask(b.with(KeyHeader, keyOf(1)), "x"), true, false)
		for _, rest := range []time.Duration{30 * time.Second, 2 * time.Minute} { // as clients say it again only now and then
			time.Sleep(rest)
			for range 2 {
				b.saw(b.ask(b.with(KeyHeader, keyOf(1)), "x"), true, false)
			}
		}
		if err := testutil.GatherAndCompare(r, strings.NewReader(`
# HELP slicer_sliceletgrpc_misrouted_total RPCs for keys that the task does not own, by whether the client's assignment is older or newer than the task's, and by what became of them.
# TYPE slicer_sliceletgrpc_misrouted_total counter
slicer_sliceletgrpc_misrouted_total{result="served",route="newer"} 8
slicer_sliceletgrpc_misrouted_total{result="served",route="older"} 1
slicer_sliceletgrpc_misrouted_total{result="served",route="same"} 1
slicer_sliceletgrpc_misrouted_total{result="served",route="unknown"} 1
`), "slicer_sliceletgrpc_misrouted_total"); err != nil {
			b.t.Error(err)
		}
	})
}

func TestAffinity(t *testing.T) {
	r := prometheus.NewRegistry()
	run(t, Config{Registerer: r}, func(b *bed) {
		b.assign(5, 0, 1)
		b.saw(b.ask(b.with(KeyHeader, keyOf(0)), "x"), true, true)
		b.saw(b.ask(b.with(KeyHeader+"-bin", keyOf(0)), "x"), true, true)
		b.saw(b.watch(b.with(KeyHeader, keyOf(0)), "x"), true, true)
		b.saw(b.ask(b.t.Context(), "x"), false, false)
		b.saw(b.watch(b.t.Context(), "x"), false, false)
		for _, generation := range []string{"4", "5", "6", "six"} {
			b.saw(b.ask(b.with(KeyHeader, keyOf(1), GenerationHeader, generation), "x"), true, false)
		}
		b.saw(b.watch(b.with(KeyHeader, keyOf(1)), "x"), true, false)
		if err := b.ask(b.t.Context(), "fail"); status.Code(err) != codes.NotFound {
			b.t.Error(err)
		}
		want := `
# HELP slicer_sliceletgrpc_errors_total RPCs that failed, by method and code.
# TYPE slicer_sliceletgrpc_errors_total counter
slicer_sliceletgrpc_errors_total{code="NotFound",method="/hello.Greeter/SayHello"} 1
# HELP slicer_sliceletgrpc_misrouted_total RPCs for keys that the task does not own, by whether the client's assignment is older or newer than the task's, and by what became of them.
# TYPE slicer_sliceletgrpc_misrouted_total counter
slicer_sliceletgrpc_misrouted_total{result="served",route="newer"} 1
slicer_sliceletgrpc_misrouted_total{result="served",route="older"} 1
slicer_sliceletgrpc_misrouted_total{result="served",route="same"} 1
slicer_sliceletgrpc_misrouted_total{result="served",route="unknown"} 2
`
		if err := testutil.GatherAndCompare(r, strings.NewReader(want), "slicer_sliceletgrpc_errors_total", "slicer_sliceletgrpc_misrouted_total"); err != nil {
			b.t.Error(err)
		}
		if n := testutil.CollectAndCount(r, "slicer_sliceletgrpc_rpc_seconds"); n != 2 {
			b.t.Errorf("latencies of %d methods", n)
		}
		if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
			b.t.Errorf("%v, %v", problems, err)
		}
	})
}

// refused checks that an RPC was turned away as clerkgrpc understands it, and that
// no handler has seen it.
func (b *bed) refused(err error) {
	b.t.Helper()
	s := status.Convert(err)
	var m *slicerv1.Refusal
	for _, d := range s.Details() {
		m, _ = d.(*slicerv1.Refusal)
	}
	if s.Code() != codes.Unavailable || m.GetTask() != "a" || m.GetJob() != "job" || m.GetGeneration() != 5 || b.service.keyed {
		b.t.Errorf("%v, detail %v, seen %v", err, m, b.service.keyed)
	}
}

// TestConsistent: without leases the task owns nothing, and refuses.
func TestConsistent(t *testing.T) {
	r := prometheus.NewRegistry()
	of := func(_ string, request any) (string, bool) {
		v, ok := request.(*wrapperspb.StringValue)
		return v.GetValue(), ok && v.GetValue() != ""
	}
	run(t, Config{Registerer: r, Key: of}, func(b *bed) {
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_CONSISTENT})
		b.assign(5, 0, 1)
		b.refused(b.ask(b.with(KeyHeader, keyOf(1)), "x"))
		b.refused(b.ask(b.t.Context(), keyOf(1)))
		b.refused(b.watch(b.with(KeyHeader, keyOf(1)), "x"))
		b.refused(b.watch(b.t.Context(), keyOf(1))) // by its first message
		b.saw(b.ask(b.t.Context(), ""), false, false)
		b.saw(b.watch(b.t.Context(), ""), false, false)
	})
}

func TestConsistentBeforeAnyStatus(t *testing.T) {
	for _, leases := range []*lease.Reader{nil, {}} {
		runWith(t, Config{}, func(c *slicelet.Config) { c.Leases, c.Distributors = leases, []string{"10.0.0.9:1"} }, func(b *bed) {
			if err := b.ask(b.with(KeyHeader, "k"), "x"); (err != nil) != (leases != nil) {
				b.t.Errorf("leases %v, mode %v: %v", leases != nil, b.slicelet.Mode(), err)
			}
		})
	}
}

func TestRequireKey(t *testing.T) {
	run(t, Config{Header: "X-User", RequireKey: true}, func(b *bed) {
		b.assign(5, 0, 1)
		b.saw(b.ask(b.with("x-user", keyOf(0)), "x"), true, true)
		for _, err := range []error{b.ask(b.with(KeyHeader, "k"), "x"), b.watch(b.t.Context(), "x")} {
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `"x-user"`) {
				b.t.Error(err)
			}
		}
		if _, err := healthv1.NewHealthClient(b.conn).Check(b.t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			b.t.Error(err)
		}
	})
}

// TestUtilization: what the server says of its load is in the trailers.
func TestUtilization(t *testing.T) {
	run(t, Config{Utilization: func() float64 { return .75 }}, func(b *bed) {
		var carried int
		for range 40 {
			var trailer metadata.MD
			if err := b.ask(b.t.Context(), "x", grpc.Trailer(&trailer)); err != nil {
				b.t.Fatal(err)
			}
			if v := trailer.Get("endpoint-load-metrics-bin"); len(v) == 1 && len(v[0]) > 10 {
				carried++
			}
			time.Sleep(100 * time.Millisecond)
		}
		if carried < 25 {
			b.t.Errorf("%d of 40 RPCs carried the load", carried)
		}
	})
	// A busy server says it with some RPCs of each connection only, and forgets those that
	// are gone.
	l := &load{source: func() float64 { return 0 }, recorder: noRecorder{}}
	now, n := time.Now(), 0
	connectionAt := func(addr net.Addr) *connection {
		return l.connectionOf(peer.NewContext(t.Context(), &peer.Peer{Addr: addr}))
	}
	rare, busy := connectionAt(&net.TCPAddr{}), connectionAt(&net.TCPAddr{})
	for i := range 8000 {
		at := now.Add(time.Duration(i) * time.Millisecond)
		if busy.tells(at) {
			n++
		}
		if i%500 == 0 && !rare.tells(at) {
			t.Errorf("an RPC of a connection that has few does not say it, after %d ms", i)
		}
	}
	if n != 80 {
		t.Errorf("%d of 8000 RPCs in 8 s", n)
	}
	l.count(now.Add(time.Minute), nil, served)
	l.connections.Range(func(addr, _ any) bool { t.Errorf("%v is remembered", addr); return true })
	type odd struct {
		net.Addr
		_ []int
	}
	if c := connectionAt(odd{}); c != nil || c.number() != 0 {
		t.Error("an address that cannot be looked up is one of a connection")
	}
}

// TestKeyFields: a request's field has the key where neither metadata nor Key do.
func TestKeyFields(t *testing.T) {
	of := func(_ string, request any) (string, bool) {
		return keyOf(1), request.(*wrapperspb.StringValue).GetValue() == "by Key"
	}
	run(t, Config{Key: of, KeyFields: []string{"absent", "value"}}, func(b *bed) {
		b.assign(5, 0, 1)
		for _, c := range []struct {
			with context.Context
			name string
			owns bool
		}{
			{b.t.Context(), keyOf(0), true},
			{b.t.Context(), keyOf(1), false},
			{b.t.Context(), "by Key", false},
			{b.with(KeyHeader, keyOf(1)), keyOf(0), false},
		} {
			if _, err := b.stub.SayHello(c.with, wrapperspb.String(c.name)); err != nil || !b.service.keyed || b.service.owned != c.owns {
				t.Errorf("%q: %v, keyed %v, owned %v", c.name, err, b.service.keyed, b.service.owned)
			}
		}
		if _, err := b.stub.SayHello(b.t.Context(), wrapperspb.String("")); err != nil || b.service.keyed {
			t.Errorf("without a key: %v, keyed %v", err, b.service.keyed)
		}
		hellos, err := b.stub.SayHellos(b.t.Context(), wrapperspb.String(keyOf(0)))
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = hellos.Recv()
		}
		if err != io.EOF {
			t.Error(err)
		}
	})
	defer func() {
		if why := recover(); why == nil || !strings.Contains(fmt.Sprint(why), "key_fields") {
			t.Errorf("a path that is not allowed: %v", why)
		}
	}()
	ServerOptions(nil, Config{KeyFields: []string{"a..b"}})
}

// TestCallMetrics: what a handler adds goes with the load, if that is asked for.
func TestCallMetrics(t *testing.T) {
	for _, on := range []bool{true, false} {
		run(t, Config{CallMetrics: on, Utilization: func() float64 { return .5 }}, func(b *bed) {
			b.assign(5, 0, 1)
			b.service.look = func(ctx context.Context) {
				r := orca.CallMetricsRecorderFromContext(ctx)
				if (r != nil) != on {
					t.Errorf("with CallMetrics %v the recorder is %v", on, r)
				}
				if r != nil {
					r.SetNamedMetric("own", 7)
				}
			}
			report := new(orcav3.OrcaLoadReport)
			for range 3 { // the load is measured once a second
				time.Sleep(loadInterval)
				var trailer metadata.MD
				if _, err := b.stub.SayHello(b.with(KeyHeader, keyOf(0)), wrapperspb.String("x"), grpc.Trailer(&trailer)); err != nil {
					t.Fatal(err)
				}
				v := trailer.Get(loadReport)
				if len(v) != 1 {
					t.Fatalf("%d load reports", len(v))
				}
				if err := proto.Unmarshal([]byte(v[0]), report); err != nil {
					t.Fatal(err)
				}
			}
			_, own := report.GetNamedMetrics()["own"]
			if n, ok := report.GetNamedMetrics()[inFlight]; own != on || !ok || n != 1 || report.GetApplicationUtilization() != .5 || !(report.GetRpsFractional() > 0) || report.GetEps() != 0 {
				t.Errorf("with CallMetrics %v the load is %v", on, report)
			}
		})
	}
}

// weighs is what clients make of what the server says of itself, when it has had so
// many RPCs a second, which all end with a code.
func weighs(t *testing.T, code codes.Code, rate int, utilization float64) (w float64) {
	run(t, Config{Utilization: func() float64 { return utilization }}, func(b *bed) {
		b.service.fails = code
		var u policy.Utilization
		began := time.Now()
		for range 12 * rate {
			var trailer metadata.MD
			if err := b.ask(b.t.Context(), "x", grpc.Trailer(&trailer)); status.Code(err) != code {
				b.t.Fatal(err)
			}
			if v := trailer.Get("endpoint-load-metrics-bin"); len(v) == 1 {
				var load orcav3.OrcaLoadReport
				if err := proto.Unmarshal([]byte(v[0]), &load); err != nil {
					b.t.Fatal(err)
				}
				u.Report(time.Since(began), policy.Report{Utilization: load.GetApplicationUtilization(), Requests: load.GetRpsFractional(), Errors: load.GetEps()})
			}
			time.Sleep(time.Second / time.Duration(rate))
		}
		w = u.Weight(time.Since(began))
	})
	return w
}

// TestFailingDoesNotAttract: a task that answers a thousand RPCs a second with an error,
// since that costs it nothing, weighs a thousandth of one that serves, and one whose
// RPCs are all at fault themselves is taken for one that is not known.
func TestFailingDoesNotAttract(t *testing.T) {
	healthy := weighs(t, codes.OK, 100, .5)
	if healthy < 150 || healthy > 250 {
		t.Errorf("a healthy task weighs %f", healthy)
	}
	for _, code := range []codes.Code{codes.Internal} {
		if w := weighs(t, code, 1000, .05); w <= 0 || w > healthy/500 {
			t.Errorf("a task that fails with %s weighs %f, a healthy one %f", code, w, healthy)
		}
	}
	for _, code := range []codes.Code{codes.NotFound} {
		if w := weighs(t, code, 1000, .05); w != 0 {
			t.Errorf("a task that says %s weighs %f", code, w)
		}
	}
}

// TestRefusalsAreNoErrors: in consistent mode a task that refuses what is not its own is
// not ill.
func TestRefusalsAreNoErrors(t *testing.T) {
	run(t, Config{Utilization: func() float64 { return .5 }}, func(b *bed) {
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_CONSISTENT})
		b.assign(5, 0, 1)
		for range 300 {
			var trailer metadata.MD
			b.refused(b.ask(b.with(KeyHeader, keyOf(1)), "x", grpc.Trailer(&trailer)))
			if v := trailer.Get("endpoint-load-metrics-bin"); len(v) == 1 {
				var load orcav3.OrcaLoadReport
				if err := proto.Unmarshal([]byte(v[0]), &load); err != nil || load.GetEps() != 0 || load.GetRpsFractional() != 0 {
					b.t.Fatalf("%v, %v", &load, err)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

func TestMethodsAreBounded(t *testing.T) {
	m := newMetrics()
	for i := range 2 * maxMethods {
		m.answered("/made.up/"+strings.Repeat("x", i), codes.Unimplemented, time.Second)
	}
	if n := testutil.CollectAndCount(m.errors); n != maxMethods+1 {
		t.Errorf("%d methods have metrics", n)
	}
}

var sliceKeyForm = regexp.MustCompile(`^[0-7][0-9a-f]{15}$`)

// FuzzSliceKey: what comes from the network is a slice key or is not, and means one
// number in one form.
func FuzzSliceKey(f *testing.F) {
	for _, text := range []string{"", "1cbf4e9d3b57be40", "8000000000000000", "0X1", "1CBF4E9D3B57BE40", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, ok := sliceKey(text)
		if ok != sliceKeyForm.MatchString(text) || ok && (k >= assignment.KeyspaceEnd || k.String() != text) {
			t.Errorf("%q: %d, %t", text, k, ok)
		}
	})
}
