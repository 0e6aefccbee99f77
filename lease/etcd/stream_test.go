package etcdlease_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
)

// bytesCodec passes messages on as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(b mem.BufferSlice, v any) error {
	*v.(*[]byte) = b.Materialize()
	return nil
}

func (bytesCodec) Name() string { return "proto" }

// forwarder stands before an etcd and can leave streams of watches without an answer,
// though all else goes on over the same connection.
type forwarder struct {
	address string
	to      *grpc.ClientConn

	mu    sync.Mutex
	stuck chan struct{} // closed: for streams that have begun before
}

func forward(t *testing.T, endpoint string) *forwarder {
	t.Helper()
	f := &forwarder{stuck: make(chan struct{})}
	var err error
	if f.to, err = grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = lis.Addr().String()
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error { return f.serve(in) }))
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); <-served; f.to.Close() })
	return f
}

// stick leaves all streams of watches that there are without an answer for good.
func (f *forwarder) stick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.stuck)
	f.stuck = make(chan struct{})
}

func (f *forwarder) serve(in grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(in)
	var stuck <-chan struct{}
	if method == "/etcdserverpb.Watch/Watch" {
		f.mu.Lock()
		stuck = f.stuck
		f.mu.Unlock()
	}
	md, _ := metadata.FromIncomingContext(in.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(in.Context(), md))
	defer cancel()
	out, err := f.to.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodecV2(bytesCodec{}))
	if err != nil {
		return err
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	asking.Go(func() {
		for {
			var m []byte
			if err := in.RecvMsg(&m); err != nil {
				_ = out.CloseSend()
				return
			}
			if out.SendMsg(&m) != nil {
				return
			}
		}
	})
	for {
		var m []byte
		switch err := out.RecvMsg(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		select {
		case <-stuck:
			<-in.Context().Done()
			return nil
		default:
		}
		if err := in.SendMsg(&m); err != nil {
			return err
		}
	}
}

// etcd leaves the stream of a process's watches without an answer, while it renews the
// session. A watch that stands is begun anew on another stream and tells of a change, and
// one that begins does so in the end: a reader that heard of no recall would hold up its
// job for as long as it lives.
func TestWatchThatIsSilent(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Start(t)[0]
	prefix := etcdtest.Prefix(t)
	direct := openAt(t, etcdlease.Config{Endpoints: []string{endpoint}, Prefix: prefix})
	f := forward(t, endpoint)
	st := openAt(t, etcdlease.Config{Endpoints: []string{f.address}, Prefix: prefix})
	var session lease.ReadSession
	if err := patiently(t, func(ctx context.Context) (err error) {
		session, err = st.OpenReader(ctx, time.Minute, "job")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	stands, err := session.Watch(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stands.Close() })
	if _, err := stands.Next(t.Context()); err != nil {
		t.Fatal(err)
	}

	f.stick()
	booted(t, direct)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for {
			seen, err := stands.Next(ctx)
			if err == nil && seen.Guard.Generation == 0 {
				continue
			}
			if err != nil || seen.Guard.Generation != 1 {
				t.Errorf("the watch that stands: %+v, %v", seen, err)
			}
			return
		}
	})
	for {
		begins, err := session.Watch(ctx, "job")
		if err != nil {
			t.Fatal(err)
		}
		seen, err := begins.Next(ctx)
		if err := begins.Close(); err != nil {
			t.Error(err)
		}
		if err == nil && seen.Guard.Generation == 1 {
			return
		}
		if !errors.Is(err, lease.ErrUnavailable) {
			t.Fatalf("a watch that begins: %+v, %v", seen, err)
		}
	}
}

// The watch by which an assigner follows a job falls silent: a change that waits for a
// reader goes on when the reader lets go, not a second later each time.
func TestFollowerThatIsSilent(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Start(t)[0]
	prefix := etcdtest.Prefix(t)
	f := forward(t, endpoint)
	st := openAt(t, etcdlease.Config{Endpoints: []string{f.address}, Prefix: prefix})
	var w lease.WriteSession
	if err := patiently(t, func(ctx context.Context) (err error) { w, err = st.OpenWriter(ctx, time.Minute); return err }); err != nil {
		t.Fatal(err)
	}
	token, err := w.Lead(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	change := lease.Change{Job: "job", Token: token, Wanted: 1}
	if _, err := lease.Advance(t.Context(), w, change); err != nil {
		t.Fatal(err)
	}
	f.stick()
	// Each of its four steps is followed by a wait of at most a second for what the watch tells.
	for change.Wanted = 2; change.Wanted < 5; change.Wanted++ {
		if _, err := lease.Advance(t.Context(), w, change); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st1, err := w.State(ctx, "job")
	if err != nil {
		t.Fatal(err)
	}
	for {
		st2, err := w.Await(ctx, "job", st1.Revision-1)
		if err == nil && st2.Head == 4 {
			return
		}
		if !errors.Is(err, lease.ErrUnavailable) {
			t.Fatalf("%+v, %v", st2, err)
		}
	}
}
