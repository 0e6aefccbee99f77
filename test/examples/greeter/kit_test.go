package greeter

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/slicertest"
)

// unit is the greeter as the programs server and client are made, in one process and without
// Slicer.
type unit struct {
	*testing.T
	env    *slicertest.Env
	client hello.GreeterClient
}

func newUnit(t *testing.T) *unit {
	u := &unit{T: t, env: slicertest.New(t)}
	routed := clerkgrpc.DialOptions(clerkgrpc.Config{HealthCheck: true, Clerk: clerk.Config{
		Distributors: u.env.Distributors(), DialOptions: u.env.DialOptions(),
	}})
	conn, err := grpc.NewClient("slicer:///greeter", append(routed, u.env.DialOptions()...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	u.client = hello.NewGreeterClient(conn)
	return u
}

// server starts one; drain ends it as SIGTERM ends the program.
func (u *unit) server(task string) (drain func()) {
	lis := u.env.Listen(task)
	s := u.env.Slicelet(slicelet.Config{Job: "greeter", Task: task})
	server := grpc.NewServer(append(sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{}), grpc.WaitForHandlers(true))...)
	hello.RegisterGreeterServer(server, hello.Greeter{From: task})
	h := health.NewServer()
	healthv1.RegisterHealthServer(server, h)
	done := u.serve(server, lis)
	u.Cleanup(func() {
		server.Stop()
		<-done
	})
	return func() {
		if err := sliceletgrpc.Drain(u.Context(), s, server, h); err != nil {
			u.Error(err)
		}
	}
}

func (u *unit) serve(server *grpc.Server, lis net.Listener) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(lis); err != nil {
			u.Error(err)
		}
	}()
	return done
}

// greet checks which server greets a name.
func (u *unit) greet(name, want string) {
	u.Helper()
	ctx, cancel := context.WithTimeout(u.Context(), 10*time.Second)
	defer cancel()
	reply, err := u.client.SayHello(clerk.WithKey(ctx, name), wrapperspb.String(name))
	if err != nil {
		u.Fatal(err)
	}
	if got := reply.GetValue(); got != "hello "+name+", this is "+want {
		u.Errorf("%q, want %s", got, want)
	}
}

// A name is greeted by the server that owns it, wherever that is.
func TestUnitOwnerGreets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t)
		u.server("greeter-0")
		u.server("greeter-1")
		for _, task := range []string{"greeter-0", "greeter-1", "greeter-0"} {
			u.env.Assign("greeter", slicertest.Key("Ada", task))
			synctest.Wait() // the connection has heard of it, too
			u.greet("Ada", task)
		}
	})
}

// A server that is told to go is asked for nothing more, and what it had is another's.
func TestUnitDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t)
		drain := u.server("greeter-0")
		u.server("greeter-1")
		u.env.Assign("greeter", slicertest.Key("Ada", "greeter-0"))
		synctest.Wait()
		u.greet("Ada", "greeter-0")
		drain()
		u.greet("Ada", "greeter-1")
	})
}

// A client that is behind gets its answer all the same, as the job is in affinity mode.
func TestUnitBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t)
		u.server("greeter-0")
		u.server("greeter-1")
		u.env.Assign("greeter", slicertest.Key("Ada", "greeter-0"))
		synctest.Wait()
		release := u.env.Hold("greeter-1") // the server does not know yet that Ada is its own
		u.env.Assign("greeter", slicertest.Key("Ada", "greeter-1"))
		synctest.Wait()
		u.greet("Ada", "greeter-1")
		release()
	})
}
