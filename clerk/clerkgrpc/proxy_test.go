package clerkgrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

// proxyBed is a proxy before the tasks of a bed, and a stock client of it.
type proxyBed struct {
	*bed
	proxy   *Proxy
	conn    *grpc.ClientConn
	stub    hello.GreeterClient
	metrics *prometheus.Registry
}

var byUser = front.Rule{Job: jobName, Key: []httpkey.Source{httpkey.Header("x-user")}}

// throughProxy runs a test in virtual time.
func throughProxy(t *testing.T, cfg ProxyConfig, test func(p *proxyBed)) {
	t.Helper()
	run(t, Config{Keyless: AnyTask}, func(b *bed) {
		t := b.t
		p := &proxyBed{bed: b, metrics: prometheus.NewRegistry()}
		if cfg.Rules.List == nil {
			cfg.Rules.List = []front.Rule{byUser}
		}
		cfg.Registerer = p.metrics
		cfg.Clerk = func(job string) (*clerk.Clerk, error) {
			return clerk.New(clerk.Config{Job: job, Distributors: []string{distributor}, DialOptions: b.net.DialOptions(), Registerer: p.metrics, Logger: slog.New(slog.DiscardHandler)})
		}
		cfg.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(b.reach)}
		var err error
		if p.proxy, err = NewProxy(cfg); err != nil {
			t.Fatal(err)
		}
		lis := bufconn.Listen(1 << 16)
		srv := grpc.NewServer(p.proxy.ServerOptions()...)
		done := make(chan error, 1)
		go func() { done <- srv.Serve(lis) }()
		p.conn, err = grpc.NewClient("passthrough:///batch.example:80", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		p.stub = hello.NewGreeterClient(p.conn)
		defer func() {
			p.conn.Close()
			srv.Stop()
			if err := errors.Join(<-done, p.proxy.Close()); err != nil {
				t.Error(err)
			}
			if len(p.proxy.open) > 0 {
				t.Errorf("%d connections to jobs are left", len(p.proxy.open))
			}
		}()
		test(p)
	})
}

// count is what a proxy has counted as ended so.
func (p *proxyBed) count(result string) (n float64) {
	p.t.Helper()
	families, err := p.metrics.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "slicer_proxy_requests_total" && m.GetLabel()[1].GetValue() == result {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

func asUser(t *testing.T, key string, more ...string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), append([]string{"x-user", key}, more...)...)
}

// TestProxyRoutes: RPCs go to the tasks that own their keys, as sheddable_plus, with the
// client's metadata but for those that are Slicer's own.
func TestProxyRoutes(t *testing.T) {
	throughProxy(t, ProxyConfig{Rules: front.Rules{List: []front.Rule{
		{Host: "other.example", Job: "other"},
		{Path: "/hello.Greeter/SayHellos", Job: jobName, Key: byUser.Key, Missing: front.Refuse},
		{Path: "/hello.Greeter/", Job: jobName, Key: byUser.Key, DefaultCustomer: "batch"},
		{Path: "/grpc.health.v1.Health/", Job: jobName, Criticality: overload.Critical},
	}}}, func(p *proxyBed) {
		t := p.t
		p.health = health.NewServer()
		tasks, servers := p.serveThree()
		p.put(tasks, each...)
		forged := []string{
			KeyHeader, keyOf(2, 3), "slicer-key-bin", "x", CriticalityHeader, "critical_plus", CohortHeader, "0", CustomerHeader, "mail", AttemptHeader, "2",
			StandsForHeader, "100", "slicer-other", "x", "slice-key", "0000000000000000", "x-forwarded-for", "6.6.6.6", "x-kept", "1", "x-kept", "2", "x-kept-bin", "\x00\xff",
		}
		for i := range tasks {
			key := keyOf(i, 3)
			got, err := p.stub.SayHello(asUser(t, key, forged...), wrapperspb.String("n"))
			if err != nil || got.GetValue() != tasks[i].Name {
				t.Fatalf("%s is answered by %q, %v", key, got.GetValue(), err)
			}
			md := servers[i].newest()
			for name, want := range map[string][]string{
				KeyHeader: {key}, CriticalityHeader: {"sheddable_plus"}, CustomerHeader: {"batch"}, "x-user": {key}, "x-kept": {"1", "2"}, "x-kept-bin": {"\x00\xff"},
				"slicer-key-bin": nil, CohortHeader: nil, AttemptHeader: nil, StandsForHeader: nil, "slicer-other": nil, "slice-key": nil, "x-forwarded-for": nil,
				"x-forwarded-host": {"batch.example:80"}, "x-forwarded-proto": {"http"}, GenerationHeader: {"1"}, "content-type": {"application/grpc"},
			} {
				if !slices.Equal(md[name], want) {
					t.Errorf("the task hears %s %q, want %q", name, md[name], want)
				}
			}
		}
		asked := map[string]int{}
		for range 60 {
			got, err := p.stub.SayHello(t.Context(), wrapperspb.String("n"))
			if err != nil {
				t.Fatal(err)
			}
			asked[got.GetValue()]++
		}
		if len(asked) != 3 {
			t.Errorf("RPCs without a key went to %v", asked)
		}
		stream, err := p.stub.SayHellos(t.Context(), wrapperspb.String("n"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		p.fails(err, codes.InvalidArgument, "the request has no key: header X-User is absent")
		p.fails(p.conn.Invoke(t.Context(), "/other.Service/Method", &wrapperspb.StringValue{}, &wrapperspb.StringValue{}), codes.Unimplemented,
			`no rule fits authority "batch.example:80" and method "/other.Service/Method"`)
		// A service that neither the rule nor the proxy knows.
		answer, err := healthv1.NewHealthClient(p.conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
		if err != nil || answer.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health: %v, %v", answer, err)
		}
		synctest.Wait()
		if ok, noKey := p.count("OK"), p.count("no_key"); ok != 64 || noKey != 1 {
			t.Errorf("%v counted as OK, %v as without a key", ok, noKey)
		}
		if problems, err := testutil.GatherAndLint(p.metrics); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	})
}

// chat is a service that the proxy has never heard of: for each message it sends two, and
// then whatever it was told to end with.
var chat = grpc.ServiceDesc{ServiceName: "test.Chat", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
	{StreamName: "Chat", ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		if err := s.SendHeader(metadata.Pairs("head", "early", "slicer-secret", "x")); err != nil {
			return err
		}
		defer s.SetTrailer(metadata.Pairs("tail", "late", "tail-bin", "\x00", LevelHeader, "bad", "endpoint-load-metrics-bin", ""))
		for {
			m := new(wrapperspb.StringValue)
			if err := s.RecvMsg(m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			for _, x := range []string{"you say ", "I hear "} {
				if err := s.SendMsg(wrapperspb.String(x + m.GetValue())); err != nil {
					return err
				}
			}
			if m.GetValue() == "fail" {
				st, err := status.New(codes.FailedPrecondition, "50 % of ünknown\n").WithDetails(wrapperspb.String("why"), durationpb.New(time.Second))
				if err != nil {
					return err
				}
				return st.Err()
			}
		}
	}},
}}

// TestProxyStreams: messages go in both directions as they come, and headers, trailers
// and errors are those of the task.
func TestProxyStreams(t *testing.T) {
	throughProxy(t, ProxyConfig{}, func(p *proxyBed) {
		t := p.t
		task := three()[0]
		p.serve(task, grpc.UnknownServiceHandler(func(srv any, s grpc.ServerStream) error { return chat.Streams[0].Handler(srv, s) }))
		p.put([]assignment.Task{task}, []uint32{0})
		for _, end := range []string{"close", "fail"} {
			s, err := p.conn.NewStream(asUser(t, "anna"), &chat.Streams[0], "/test.Chat/Chat")
			if err != nil {
				t.Fatal(err)
			}
			// The header comes before the first message goes.
			if md, err := s.Header(); err != nil || !slices.Equal(md["head"], []string{"early"}) || md["slicer-secret"] != nil {
				t.Errorf("header %v, %v", md, err)
			}
			words := []string{"a", "", strings.Repeat("x", 100_000)}
			if end == "fail" {
				words = append(words, "fail")
			}
			for _, word := range words {
				if err := s.SendMsg(wrapperspb.String(word)); err != nil {
					t.Fatal(err)
				}
				for _, x := range []string{"you say ", "I hear "} {
					m := new(wrapperspb.StringValue)
					if err := s.RecvMsg(m); err != nil || m.GetValue() != x+word {
						t.Fatalf("%d bytes, %v", len(m.GetValue()), err)
					}
				}
			}
			if end == "close" {
				if err := s.CloseSend(); err != nil {
					t.Fatal(err)
				}
			}
			err = s.RecvMsg(new(wrapperspb.StringValue))
			if end == "close" && !errors.Is(err, io.EOF) {
				t.Errorf("it ends with %v", err)
			}
			if st := status.Convert(err); end == "fail" && (st.Code() != codes.FailedPrecondition || st.Message() != "50 % of ünknown\n" ||
				fmt.Sprint(st.Details()) != fmt.Sprint([]any{wrapperspb.String("why"), durationpb.New(time.Second)})) {
				t.Errorf("it ends with %v, %v", err, st.Details())
			}
			md := s.Trailer()
			if !slices.Equal(md["tail"], []string{"late"}) || !slices.Equal(md["tail-bin"], []string{"\x00"}) || md[LevelHeader] != nil || md["endpoint-load-metrics-bin"] != nil {
				t.Errorf("trailer %v", md)
			}
		}
		if ok, failed := p.count("OK"), p.count("FailedPrecondition"); ok != 1 || failed != 1 {
			t.Errorf("%v counted as OK, %v as failed", ok, failed)
		}
		// Unary RPCs and streams of a server.
		hellos, err := p.stub.SayHellos(asUser(t, "anna"), wrapperspb.String("me"))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if m, err := hellos.Recv(); err != nil || m.GetValue() != "hello me" {
				t.Fatal(m, err)
			}
		}
		if _, err := hellos.Recv(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}

// TestProxyContentTypes: what a client says of its messages' form goes on, and so do
// compressed ones.
func TestProxyContentTypes(t *testing.T) {
	throughProxy(t, ProxyConfig{}, func(p *proxyBed) {
		t := p.t
		task := three()[0]
		proto := encoding.GetCodecV2("proto")
		server := p.serve(task, grpc.ForceServerCodecV2(proto))
		p.put([]assignment.Task{task}, []uint32{0})
		for want, opts := range map[string][]grpc.CallOption{
			"application/grpc":      {grpc.UseCompressor("gzip")},
			"application/grpc+json": {grpc.ForceCodecV2(proto), grpc.CallContentSubtype("json")},
		} {
			got, err := p.stub.SayHello(asUser(t, "anna"), wrapperspb.String("n"), opts...)
			if md := server.newest(); err != nil || got.GetValue() != "a" || !slices.Equal(md["content-type"], []string{want}) {
				t.Errorf("%s: %q, %v; the task hears %q", want, got.GetValue(), err, md["content-type"])
			}
		}
	})
}

// TestProxyEnds: deadlines and cancellations reach the task, and so does the rule's timeout.
func TestProxyEnds(t *testing.T) {
	slow := byUser
	slow.Path, slow.Timeout = "/hello.Greeter/SayHello", 3*time.Second
	throughProxy(t, ProxyConfig{Rules: front.Rules{List: []front.Rule{slow, byUser}}}, func(p *proxyBed) {
		t := p.t
		task := three()[0]
		var mu sync.Mutex
		var left []time.Duration
		var ends []error
		wait := func(ctx context.Context) error {
			by, _ := ctx.Deadline()
			mu.Lock()
			left = append(left, time.Until(by))
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			ends = append(ends, ctx.Err())
			mu.Unlock()
			return status.FromContextError(ctx.Err()).Err()
		}
		p.serve(task, grpc.ChainUnaryInterceptor(func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
			return nil, wait(ctx)
		}), grpc.ChainStreamInterceptor(func(_ any, s grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
			return wait(s.Context())
		}))
		p.put([]assignment.Task{task}, []uint32{0})
		synctest.Wait()
		check := func(what string, want time.Duration, end error) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(left) != 1 || left[0] > want || left[0] < want-50*time.Millisecond && want > 0 || len(ends) != 1 || end != nil && ends[0] != end {
				t.Errorf("%s: the task has %v left, want %s, and ends with %v, want %v", what, left, want, ends, end)
			}
			left, ends = nil, nil
		}
		ctx, cancel := context.WithTimeout(asUser(t, "anna"), time.Second)
		_, err := p.stub.SayHello(ctx, wrapperspb.String("n"))
		cancel()
		p.fails(err, codes.DeadlineExceeded, "")
		check("a deadline", time.Second, nil) // its own or the proxy's cancellation, whichever is first

		_, err = p.stub.SayHello(asUser(t, "anna"), wrapperspb.String("n"))
		p.fails(err, codes.DeadlineExceeded, "")
		check("the rule's timeout", 3*time.Second, nil)

		before := p.count("gone") // the first client may count, too: its time was up
		ctx, cancel = context.WithCancel(asUser(t, "anna"))
		s, err := p.stub.SayHellos(ctx, wrapperspb.String("n"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		_, err = s.Recv()
		p.fails(err, codes.Canceled, "")
		check("a client that has gone", 0, context.Canceled)
		if gone := p.count("gone") - before; gone != 1 {
			t.Errorf("%v counted as gone", gone)
		}
	})
}

// TestProxySizes: messages above the bound fail, in both directions, others pass.
func TestProxySizes(t *testing.T) {
	throughProxy(t, ProxyConfig{MaxMessage: 64 << 10}, func(p *proxyBed) {
		t := p.t
		task := three()[0]
		p.serve(task, grpc.ChainUnaryInterceptor(func(_ context.Context, m any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
			if n := m.(*wrapperspb.StringValue).GetValue(); n == "large" {
				return wrapperspb.String(strings.Repeat("x", 64<<10)), nil
			}
			return m, nil
		}))
		p.put([]assignment.Task{task}, []uint32{0})
		most := strings.Repeat("x", 64<<10-8)
		if got, err := p.stub.SayHello(asUser(t, "anna"), wrapperspb.String(most)); err != nil || got.GetValue() != most {
			t.Errorf("%d bytes, %v", len(got.GetValue()), err)
		}
		for _, name := range []string{"large", strings.Repeat("x", 64<<10)} {
			_, err := p.stub.SayHello(asUser(t, "anna"), wrapperspb.String(name))
			p.fails(err, codes.ResourceExhausted, "larger than max")
		}
	})
}

// TestProxyOverloaded: an RPC that a task has no room for goes to another owner of its key,
// unary or not, and what is left of a refusal is the client's.
func TestProxyOverloaded(t *testing.T) {
	throughProxy(t, ProxyConfig{}, func(p *proxyBed) {
		t := p.t
		tasks, servers := p.serveThree()
		p.put(tasks, []uint32{0, 1})
		for i := range 12 {
			servers[i%2].mu.Lock()
			servers[i%2].full = 1
			servers[i%2].mu.Unlock()
			got, err := p.stub.SayHello(asUser(t, "anna"), wrapperspb.String("n"))
			if err != nil || got.GetValue() != "a" && got.GetValue() != "b" {
				t.Fatalf("RPC %d: %q, %v", i, got.GetValue(), err)
			}
			time.Sleep(10 * time.Second) // for the budget of retries
		}
		if a, b := servers[0].count(), servers[1].count(); a+b < 16 || servers[2].count() > 0 {
			t.Errorf("the owners have heard %d and %d, another %d", a, b, servers[2].count())
		}
		if again := slices.ContainsFunc(servers[0].heard, func(md metadata.MD) bool { return slices.Equal(md[AttemptHeader], []string{"1"}) }); !again {
			t.Error("no task was told that an RPC had been sent before")
		}
		servers[0].full, servers[1].full, servers[0].noRetry, servers[1].noRetry = 1, 1, true, true
		_, err := p.stub.SayHello(asUser(t, "anna"), wrapperspb.String("n"))
		p.fails(err, codes.ResourceExhausted, "should not be sent again")
		if full, ok := clerk.OverloadedFromStatus(err); !ok || full.Elsewhere || full.Job != jobName {
			t.Errorf("the client learns %+v, %v", full, ok)
		}
	})
}

// TestProxyConsistent: an RPC that a task refuses since the key is not its own waits for
// the owner.
func TestProxyConsistent(t *testing.T) {
	throughProxy(t, ProxyConfig{}, func(p *proxyBed) {
		t := p.t
		p.mode(slicerv1.Mode_MODE_CONSISTENT)
		tasks, servers := p.serveThree()
		p.put(tasks, each...)
		servers[1].refuse = 2
		got, err := p.stub.SayHello(asUser(t, keyOf(1, 3)), wrapperspb.String("n"))
		if err != nil || got.GetValue() != "b" || servers[1].count() != 3 {
			t.Errorf("%q, %v, after %d", got.GetValue(), err, servers[1].count())
		}
	})
}

// TestProxyLimit: what is above a rule's limit is refused, and no task hears of it.
func TestProxyLimit(t *testing.T) {
	one, rated := byUser, byUser
	one.Path, one.Limit.UnderWay = "/hello.Greeter/SayHello", 1
	rated.Path, rated.Limit.Rate = "/hello.Greeter/SayHellos", 10
	throughProxy(t, ProxyConfig{Rules: front.Rules{List: []front.Rule{one, rated}}}, func(p *proxyBed) {
		t := p.t
		task := three()[0]
		server := p.serve(task)
		p.put([]assignment.Task{task}, []uint32{0})
		server.block = make(chan struct{})
		first := make(chan error, 1)
		go func() {
			_, err := p.stub.SayHello(asUser(t, "anna"), wrapperspb.String("n"))
			first <- err
		}()
		synctest.Wait()
		_, err := p.stub.SayHello(asUser(t, "anna"), wrapperspb.String("n"))
		p.fails(err, codes.ResourceExhausted, "lets 1 requests at a time through")
		close(server.block)
		if err := <-first; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if _, err = p.stub.SayHello(asUser(t, "anna"), wrapperspb.String("n")); err != nil {
			t.Error(err)
		}
		before, passed := server.count(), 0
		for range 200 { // in 10 s
			s, err := p.stub.SayHellos(asUser(t, "anna"), wrapperspb.String("n"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = s.Recv(); err == nil {
				passed++
				for err == nil {
					_, err = s.Recv()
				}
			} else {
				p.fails(err, codes.ResourceExhausted, "lets 10 requests a second through")
			}
			time.Sleep(50 * time.Millisecond)
		}
		if passed < 100 || passed > 110 || server.count()-before != passed {
			t.Errorf("%d of 200 pass in 10 s, and %d arrive", passed, server.count()-before)
		}
		if n := p.count("limited"); n != float64(201-passed) {
			t.Errorf("%v counted as limited", n)
		}
	})
}

// TestProxyRules: RPCs stay on their way when the rules change, and a job's connection is
// closed with the last of them.
func TestProxyRules(t *testing.T) {
	throughProxy(t, ProxyConfig{}, func(p *proxyBed) {
		t := p.t
		p.health = health.NewServer()
		task := three()[0]
		p.serve(task)
		p.put([]assignment.Task{task}, []uint32{0})
		ctx, cancel := context.WithCancel(asUser(t, "anna"))
		defer cancel()
		watch, err := healthv1.NewHealthClient(p.conn).Watch(ctx, &healthv1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		next := func(want healthv1.HealthCheckResponse_ServingStatus) {
			t.Helper()
			if m, err := watch.Recv(); err != nil || m.GetStatus() != want {
				t.Fatalf("%v, %v, want %v", m, err, want)
			}
		}
		next(healthv1.HealthCheckResponse_SERVING)
		var field *assignment.FieldError
		if err := p.proxy.SetRules(front.Rules{List: []front.Rule{byUser, {Job: "x", Path: "/x/", Upstream: front.H2C}}}); !errors.As(err, &field) || err.Error() != `rule 2: upstream: "h2c" is not allowed: want none: tasks speak gRPC` {
			t.Errorf("%v", err)
		}
		if err := p.proxy.SetRules(front.Rules{List: []front.Rule{{Job: "other", Path: "/hello.Greeter/"}}}); err != nil {
			t.Fatal(err)
		}
		p.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
		next(healthv1.HealthCheckResponse_NOT_SERVING)
		_, err = healthv1.NewHealthClient(p.conn).Check(ctx, &healthv1.HealthCheckRequest{})
		p.fails(err, codes.Unimplemented, "no rule fits")
		began := time.Now()
		_, err = p.stub.SayHello(ctx, wrapperspb.String("n"))
		p.fails(err, codes.Unavailable, `job "other" has no task to send the RPC to`)
		if waited := time.Since(began); waited != DefaultPatience {
			t.Errorf("it waited for %s", waited)
		}
		open := func() int {
			p.proxy.mu.Lock()
			defer p.proxy.mu.Unlock()
			return len(p.proxy.open)
		}
		if n := open(); n != 2 {
			t.Errorf("%d jobs are connected to", n)
		}
		cancel()
		synctest.Wait()
		if n := open(); n != 1 {
			t.Errorf("%d jobs are connected to in the end", n)
		}
	})
}

func TestProxyConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  ProxyConfig
		want string
	}{
		{ProxyConfig{Criticality: 9}, "criticality: 9 is not allowed"},
		{ProxyConfig{Patience: -1}, "patience: -1ns is not allowed: want 0 to 1h0m0s"},
		{ProxyConfig{MaxMessage: 2 << 30}, "max_message: 2147483648 is not allowed: want 0 to 1073741824 bytes"},
		{ProxyConfig{IdleClose: 1}, "idle_close: 1ns is not allowed"},
		{ProxyConfig{}, "clerk: \"none\" is not allowed"},
		{ProxyConfig{Clerk: func(string) (*clerk.Clerk, error) { return nil, nil }}, "rules: 0 is not allowed"},
	} {
		if _, err := NewProxy(c.cfg); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// TestProxyForwarded: proxies before this one are believed only if there are to be any.
func TestProxyForwarded(t *testing.T) {
	for trusted, want := range map[bool]string{
		false: "[192.0.2.1] [api.example] [https] []",
		true:  "[6.6.6.6, 192.0.2.1] [front.example] [http] [for=6.6.6.6]",
	} {
		md := metadata.Pairs(":authority", "api.example", "x-forwarded-for", "6.6.6.6", "x-forwarded-host", "front.example", "x-forwarded-proto", "http", "forwarded", "for=6.6.6.6")
		req := requestOf(t.Context(), "/a/b", md)
		req.RemoteAddr, req.URL.Scheme = "192.0.2.1:80", "https"
		md = outgoing(md, req, trusted)
		if got := fmt.Sprint(md["x-forwarded-for"], " ", md["x-forwarded-host"], " ", md["x-forwarded-proto"], " ", md["forwarded"]); got != want {
			t.Errorf("trusted %v: %s, want %s", trusted, got, want)
		}
	}
}
