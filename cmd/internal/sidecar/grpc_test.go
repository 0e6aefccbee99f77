package sidecar

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/test/slicertest"
)

// greeter is a gRPC server that knows nothing of Slicer, without generated code. It can die, and
// come back.
type greeter struct {
	t       *testing.T
	name    string
	address string
	work    func() // what it does for an RPC, if it is not nil
	mu      sync.Mutex
	srv     *grpc.Server
}

var greeterService = grpc.ServiceDesc{ServiceName: "helloworld.Greeter", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "SayHello", Handler: func(srv any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := dec(in); err != nil {
			return nil, err
		}
		return srv.(*greeter).hello(ctx, in)
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(srv any, s grpc.ServerStream) error {
		for {
			in := new(wrapperspb.StringValue)
			if err := s.RecvMsg(in); err != nil {
				return nil
			}
			out, err := srv.(*greeter).hello(s.Context(), in)
			if err != nil {
				return err
			}
			if err := s.SendMsg(out); err != nil {
				return err
			}
		}
	}}},
}

func (g *greeter) hello(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	if g.work != nil {
		g.work()
	}
	if in.Value == "fail" {
		return nil, status.Error(codes.NotFound, "no such name")
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return wrapperspb.String(fmt.Sprintf("%s: hello %s, key %s, x %s", g.name, in.Value, strings.Join(md["slicer-key"], ","), strings.Join(md["x"], ","))), nil
}

func startGreeter(t *testing.T, name string) *greeter {
	g := &greeter{t: t, name: name, address: "127.0.0.1:0"}
	g.start()
	t.Cleanup(g.kill)
	return g
}

func (g *greeter) start() {
	g.t.Helper()
	lis, err := net.Listen("tcp", g.address)
	if err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.address, g.srv = lis.Addr().String(), grpc.NewServer()
	g.srv.RegisterService(&greeterService, g)
	go func(srv *grpc.Server) { _ = srv.Serve(lis) }(g.srv)
}

func (g *greeter) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.srv.Stop()
}

const sayHello = "/helloworld.Greeter/SayHello"

func isGRPCSidecar(cfg *Config) { cfg.GRPC = true }

// TestGRPC: unary RPCs and streams of any service pass, with their metadata and their errors; rules
// find keys; the health service is the sidecar's.
func TestGRPC(t *testing.T) {
	env := slicertest.New(t)
	b := start(t, env, "a", startGreeter(t, "a").address, isGRPCSidecar)
	keys, err := front.NewKeys(byUserHeader, "web")
	if err != nil {
		t.Fatal(err)
	}
	b.SetKeys(keys)
	eventually(t, "ready", func() bool { return b.Ready() == nil })
	owners(t, env.Clerk(clerk.Config{Job: "web"}), "a")
	conn, err := grpc.NewClient(b.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out := new(wrapperspb.StringValue)
	if err := conn.Invoke(metadata.AppendToOutgoingContext(ctx, "x", "y", "x-user", "bob smith"), sayHello, wrapperspb.String("Ada"), out); err != nil || out.Value != "a: hello Ada, key bob%20smith, x y" {
		t.Errorf("%q, %v", out.Value, err)
	}
	if err := conn.Invoke(ctx, sayHello, wrapperspb.String("fail"), out); status.Code(err) != codes.NotFound || status.Convert(err).Message() != "no such name" {
		t.Error(err)
	}
	s, err := conn.NewStream(metadata.AppendToOutgoingContext(ctx, "slicer-key", "k"), &greeterService.Streams[0], "/helloworld.Greeter/Talk")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := s.SendMsg(wrapperspb.String(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(out); err != nil || out.Value != fmt.Sprintf("a: hello %d, key k, x ", i) {
			t.Fatalf("%q, %v", out.Value, err)
		}
	}
	if h, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}); h.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", h, err)
	}
}

// TestGRPCServerDies: while a server is dead, and then drains, the other gets all RPCs, and none is
// lost but those that were under way at the server.
func TestGRPCServerDies(t *testing.T) {
	env := slicertest.New(t)
	servers := []*greeter{startGreeter(t, "a"), startGreeter(t, "b")}
	a, _ := start(t, env, "a", servers[0].address, isGRPCSidecar), start(t, env, "b", servers[1].address, isGRPCSidecar)
	c := env.Clerk(clerk.Config{Job: "web"})
	owners(t, c, "a", "b")
	conn, err := grpc.NewClient("slicer:///web", append(clerkgrpc.DialOptions(clerkgrpc.Config{Shared: c}), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var byA, byB, lost atomic.Int64
	var killed, isOut atomic.Bool
	stop := waittest.Repeat(4, func(n, i int) {
		mayBeLost := !isOut.Load() // what begins now
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		out := new(wrapperspb.StringValue)
		err := conn.Invoke(clerk.WithKey(ctx, fmt.Sprint(n, "-", i)), sayHello, wrapperspb.String("Ada"), out)
		cancel()
		switch {
		case err != nil && mayBeLost && killed.Load() && status.Code(err) == codes.Unavailable:
			lost.Add(1)
		case err != nil:
			t.Error(err)
		case out.Value[0] == 'a':
			byA.Add(1)
		default:
			byB.Add(1)
		}
	})
	eventually(t, "both serve", func() bool { return byA.Load() > 10 && byB.Load() > 10 })
	killed.Store(true)
	servers[0].kill()
	owners(t, c, "b")
	isOut.Store(true)
	servers[0].start()
	owners(t, c, "a", "b")
	n := byA.Load()
	eventually(t, "a serves again", func() bool { return byA.Load() > n+10 })
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := a.Drain(ctx, nil); err != nil {
		t.Errorf("drain: %v", err)
	}
	n = byB.Load()
	eventually(t, "b serves on", func() bool { return byB.Load() > n+10 })
	stop()
	if n := lost.Load(); n > 4 {
		t.Errorf("%d RPCs are lost, and 4 at most were under way", n)
	}
}
