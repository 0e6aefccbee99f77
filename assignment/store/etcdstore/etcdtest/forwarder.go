package etcdtest

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

// Forwarder stands before an etcd and can leave streams of watches without an answer,
// though all else goes on over the same connection.
type Forwarder struct {
	address string
	to      *grpc.ClientConn

	mu    sync.Mutex
	stuck chan struct{} // closed: for streams that have begun before
}

// NewForwarder starts one for a host:port, and stops it when the test ends.
func NewForwarder(t testing.TB, endpoint string) *Forwarder {
	t.Helper()
	f := &Forwarder{stuck: make(chan struct{})}
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

// Address is where it listens, host:port.
func (f *Forwarder) Address() string { return f.address }

// Stick leaves all streams of watches that there are without an answer for good.
func (f *Forwarder) Stick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.stuck)
	f.stuck = make(chan struct{})
}

func (f *Forwarder) serve(in grpc.ServerStream) error {
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
