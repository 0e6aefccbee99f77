package sliceletgrpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/slicertest"
)

const joinMethod = "/test.Room/Join"

// rooms is servers of long streams and a client, in a bubble and without Slicer.
type rooms struct {
	*testing.T
	env  *slicertest.Env
	conn *grpc.ClientConn
	// ended has the cause of the context of each stream whose handler has returned.
	ended chan error
}

// handlers of streams: each says its task first.
func listens(task string, s grpc.ServerStream) error { // to the client, in the handler's goroutine
	for {
		if err := s.SendMsg(wrapperspb.String(task)); err != nil {
			return err
		}
		if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil {
			return err
		}
	}
}

func waits(task string, s grpc.ServerStream) error { // for the end of its context
	if err := s.SendMsg(wrapperspb.String(task)); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil // which the client does not get to see
}

func heeds(task string, s grpc.ServerStream) error { // what Moved says
	if err := s.SendMsg(wrapperspb.String(task)); err != nil {
		return err
	}
	<-Moved(s.Context())
	return s.SendMsg(wrapperspb.String("goodbye"))
}

func newRooms(t *testing.T, cfg Config, handler func(string, grpc.ServerStream) error) *rooms {
	r := &rooms{T: t, env: slicertest.New(t), ended: make(chan error, 100)}
	for _, task := range []string{"a", "b"} {
		lis := r.env.Listen(task)
		s := r.env.Slicelet(slicelet.Config{Job: "job", Task: task})
		server := grpc.NewServer(append(ServerOptions(s, cfg), grpc.WaitForHandlers(true))...)
		server.RegisterService(&grpc.ServiceDesc{
			ServiceName: "test.Room", HandlerType: (*any)(nil),
			Streams: []grpc.StreamDesc{{StreamName: "Join", ServerStreams: true, ClientStreams: true, Handler: func(_ any, ss grpc.ServerStream) error {
				err := handler(task, ss)
				r.ended <- context.Cause(ss.Context())
				return err
			}}},
		}, r)
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(lis) }()
		t.Cleanup(func() { server.Stop(); <-done })
	}
	dial := clerkgrpc.DialOptions(clerkgrpc.Config{Clerk: clerk.Config{Distributors: r.env.Distributors(), DialOptions: r.env.DialOptions()}})
	conn, err := grpc.NewClient("slicer:///job", append(dial, r.env.DialOptions()...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r.conn = conn
	return r
}

// ada is the context of an RPC with this key, which clerkgrpc and the proxy's rule find.
func ada(t *testing.T) context.Context {
	return metadata.AppendToOutgoingContext(clerk.WithKey(t.Context(), "ada"), "x-user", "ada")
}

func (r *rooms) assign(task string) {
	r.env.Assign("job", slicertest.Key("ada", task))
	synctest.Wait()
}

// join opens a stream for the key, and checks whose it is.
func (r *rooms) join(want string) grpc.ClientStream {
	r.Helper()
	s, err := r.conn.NewStream(ada(r.T), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, joinMethod)
	if err != nil {
		r.Fatal(err)
	}
	m := new(wrapperspb.StringValue)
	if err := s.RecvMsg(m); err != nil || m.GetValue() != want {
		r.Fatalf("%q, %v, want %s", m.GetValue(), err, want)
	}
	return s
}

// endsWithin checks that a stream ends as moved, and in time.
func (r *rooms) endsWithin(s grpc.ClientStream, d time.Duration) {
	r.Helper()
	began := time.Now()
	err := s.RecvMsg(new(wrapperspb.StringValue))
	lost, ok := clerk.LostFromStatus(err)
	if !ok || status.Code(err) != codes.Aborted || lost.Task != "a" || lost.Job != "job" {
		r.Errorf("the stream ended with %v", err)
	}
	if took := time.Since(began); took > d {
		r.Errorf("after %s, want at most %s", took, d)
	}
}

// A stream whose key moves ends, whatever its handler waits for, and its client finds the owner.
func TestEndMoved(t *testing.T) {
	for name, handler := range map[string]func(string, grpc.ServerStream) error{"listens": listens, "waits": waits} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRooms(t, Config{EndMoved: true}, handler)
				r.assign("a")
				s := r.join("a")
				time.Sleep(time.Minute) // it is a long one
				r.env.Assign("job", slicertest.Key("bob", "b"))
				r.assign("b")
				r.endsWithin(s, time.Second)
				if cause := <-r.ended; !errors.Is(cause, ErrMoved) {
					t.Errorf("the handler's context ended with %v", cause)
				}
				again := r.join("b")
				time.Sleep(time.Minute)
				if err := again.CloseSend(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A handler that heeds Moved ends as it likes, within the grace; one that does not is ended after
// that; without EndMoved it goes on.
func TestMoved(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Minute} {
		for _, end := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRooms(t, Config{EndMoved: end, MovedGrace: grace}, heeds)
				r.assign("a")
				s := r.join("a")
				r.assign("b")
				m := new(wrapperspb.StringValue)
				if err := s.RecvMsg(m); err != nil || m.GetValue() != "goodbye" {
					t.Errorf("%q, %v", m.GetValue(), err)
				}
				if err := s.RecvMsg(m); !errors.Is(err, io.EOF) {
					t.Errorf("then %v", err)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRooms(t, Config{}, listens)
		r.assign("a")
		s := r.join("a")
		r.assign("b")
		time.Sleep(time.Minute)
		if err := errors.Join(s.SendMsg(wrapperspb.String("")), s.RecvMsg(new(wrapperspb.StringValue))); err != nil {
			t.Errorf("the stream is over without EndMoved: %v", err)
		}
		if Moved(t.Context()) != nil {
			t.Error("moved without a key")
		}
	})
}

// What a client that is behind begins at the former owner ends soon as well. What it has begun there
// although the client knows that owner to be another, since that is dead, does not.
func TestEndMovedOfClientsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRooms(t, Config{EndMoved: true}, listens)
		r.assign("a")
		r.join("a") // so that the connection's clerk has its client id
		late := r.env.Clerk(clerk.Config{Job: "job", ClientID: "late"})
		conn, err := grpc.NewClient("slicer:///job", append(clerkgrpc.DialOptions(clerkgrpc.Config{Shared: late}), r.env.DialOptions()...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		r.conn = conn
		release := r.env.Hold("late")
		r.assign("b")
		s := r.join("a")
		r.endsWithin(s, time.Second)
		release()
		synctest.Wait()
		r.join("b")
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRooms(t, Config{EndMoved: true}, listens)
		r.env.Assign("job", slicertest.Spread("a", "b"), slicertest.Key("ada", "gone")) // which nothing listens for
		synctest.Wait()
		s, err := r.conn.NewStream(ada(r.T), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, joinMethod)
		if err != nil {
			t.Fatal(err)
		}
		m := new(wrapperspb.StringValue)
		if err := s.RecvMsg(m); err != nil {
			t.Fatal(err)
		}
		at := m.GetValue()
		time.Sleep(time.Minute)
		r.env.Assign("job", slicertest.Key("bob", "a")) // says nothing of ada
		time.Sleep(time.Minute)
		if err := errors.Join(s.SendMsg(wrapperspb.String("")), s.RecvMsg(m)); err != nil {
			t.Errorf("the stream has ended: %v", err)
		}
		// Its key comes to where it is, and then goes.
		r.assign(at)
		time.Sleep(time.Minute)
		if err := errors.Join(s.SendMsg(wrapperspb.String("")), s.RecvMsg(m)); err != nil {
			t.Errorf("the stream has ended: %v", err)
		}
		other := map[string]string{"a": "b", "b": "a"}[at]
		r.assign(other)
		if _, ok := clerk.LostFromStatus(s.RecvMsg(m)); !ok {
			t.Error("not ended")
		}
	})
}

// A drain does not wait for streams that go on for ever.
func TestDrainEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := slicertest.New(t)
		lis := env.Listen("a")
		s := env.Slicelet(slicelet.Config{Job: "job", Task: "a"})
		env.Assign("job", slicertest.Spread("a", "b"), slicertest.Key("ada", "a"))
		server := grpc.NewServer(append(ServerOptions(s, Config{EndMoved: true}), grpc.WaitForHandlers(true))...)
		server.RegisterService(&grpc.ServiceDesc{
			ServiceName: "test.Room", HandlerType: (*any)(nil),
			Streams: []grpc.StreamDesc{{StreamName: "Join", ServerStreams: true, ClientStreams: true, Handler: func(_ any, ss grpc.ServerStream) error { return listens("a", ss) }}},
		}, t)
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(lis) }()
		dial := clerkgrpc.DialOptions(clerkgrpc.Config{Clerk: clerk.Config{Distributors: env.Distributors(), DialOptions: env.DialOptions()}})
		conn, err := grpc.NewClient("slicer:///job", append(dial, env.DialOptions()...)...)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r := &rooms{T: t, env: env, conn: conn}
		stream := r.join("a")
		began := time.Now()
		if err := Drain(t.Context(), s, server, nil); err != nil {
			t.Error(err)
		}
		<-done
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("drained after %s", took)
		}
		r.endsWithin(stream, 0)
	})
}

// Of many streams those end whose keys have moved, and no others.
func TestEndMovedOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRooms(t, Config{EndMoved: true}, listens)
		r.env.Assign("job", slicertest.Spread("a"), slicertest.Key("bob", "a"), slicertest.Key("eve", "a"))
		synctest.Wait()
		open := make(map[string]grpc.ClientStream)
		keys := []string{"ada", "bob", "eve"}
		for _, key := range keys {
			s, err := r.conn.NewStream(clerk.WithKey(t.Context(), key), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, joinMethod)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil {
				t.Fatal(err)
			}
			open[key] = s
		}
		for _, key := range slices.Backward(keys) {
			r.env.Assign("job", slicertest.Key(key, "b"))
			r.endsWithin(open[key], time.Second)
			delete(open, key)
			for other, s := range open {
				if err := errors.Join(s.SendMsg(wrapperspb.String("")), s.RecvMsg(new(wrapperspb.StringValue))); err != nil {
					t.Errorf("%s has ended with %s: %v", other, key, err)
				}
			}
		}
	})
}

// Stock clients behind slicerproxy get to see the same.
func TestEndMovedThroughProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRooms(t, Config{EndMoved: true}, listens)
		proxy, err := clerkgrpc.NewProxy(clerkgrpc.ProxyConfig{
			Rules: front.Rules{List: []front.Rule{{Job: "job", Key: []httpkey.Source{httpkey.Header("x-user")}}}},
			Clerk: func(job string) (*clerk.Clerk, error) {
				return clerk.New(clerk.Config{Job: job, Distributors: r.env.Distributors(), DialOptions: r.env.DialOptions()})
			},
			DialOptions: r.env.DialOptions(),
		})
		if err != nil {
			t.Fatal(err)
		}
		server, lis, done := grpc.NewServer(proxy.ServerOptions()...), r.env.Listen("proxy"), make(chan struct{})
		go func() { defer close(done); _ = server.Serve(lis) }()
		t.Cleanup(func() {
			server.Stop()
			<-done
			if err := proxy.Close(); err != nil {
				t.Error(err)
			}
		})
		conn, err := grpc.NewClient("passthrough:///"+slicertest.Address("proxy"), r.env.DialOptions()...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		r.conn = conn
		r.assign("a")
		s := r.join("a")
		time.Sleep(time.Minute)
		r.assign("b")
		r.endsWithin(s, time.Second)
		r.join("b")
	})
}
