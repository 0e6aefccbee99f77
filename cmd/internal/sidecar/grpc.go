package sidecar

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
)

// stopLimit is how long RPCs may take to end whose server is dead.
const stopLimit = time.Second

// acceptAgain is how long after a connection that could not be taken the next one is.
const acceptAgain = 50 * time.Millisecond

// grpcServer serves one incarnation: what gRPC's interceptors know of a task cannot be changed.
type grpcServer struct {
	server *grpc.Server
	health *health.Server
	done   chan struct{}
}

// serveGRPC serves connections from the door as of an incarnation.
func (s *Sidecar) serveGRPC(l *life) error {
	opts := append(sliceletgrpc.ServerOptions(l.slicelet, sliceletgrpc.Config{EndMoved: s.cfg.EndMoved, Registerer: l.metrics}),
		s.paths.relay.ServerOptions(func(_ any, in grpc.ServerStream) error { return s.relay(l, in) })...)
	opts = append([]grpc.ServerOption{grpc.ChainStreamInterceptor(s.findKey)}, opts...)
	if s.cfg.Credentials != nil {
		opts = append(opts, grpc.Creds(s.cfg.Credentials))
	}
	g := &grpcServer{server: grpc.NewServer(opts...), health: health.NewServer(), done: make(chan struct{})}
	healthv1.RegisterHealthServer(g.server, g.health)
	g.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
	l.grpc = g
	lis := s.door.listener()
	go func() {
		defer close(g.done)
		_ = g.server.Serve(lis) // it returns when the server is stopped
	}()
	return nil
}

// started says that RPCs can be served.
func (g *grpcServer) started() { g.health.SetServingStatus("", healthv1.HealthCheckResponse_SERVING) }

// stop ends RPCs, and at once those that have not ended after stopLimit. Clients connect again.
func (g *grpcServer) stop() {
	late := time.AfterFunc(stopLimit, g.server.Stop)
	defer late.Stop()
	g.server.GracefulStop()
	<-g.done
}

// findKey is for RPCs that do not say their keys: rules find them.
func (s *Sidecar) findKey(srv any, in grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	keys := s.keys.Load()
	if keys == nil {
		return handler(srv, in)
	}
	md, _ := metadata.FromIncomingContext(in.Context())
	for _, name := range [...]string{sliceletgrpc.KeyHeader, sliceletgrpc.KeyHeader + "-bin", sliceletgrpc.SliceKeyHeader} {
		if len(md[name]) > 0 {
			return handler(srv, in)
		}
	}
	key, ok, err := keys.Find(clerkgrpc.RequestOf(in))
	switch {
	case err != nil:
		return status.Error(codes.InvalidArgument, "slicer: "+err.Error())
	case !ok:
		return handler(srv, in)
	}
	md[sliceletgrpc.KeyHeader] = []string{httpkey.EncodeKey(key)}
	return handler(srv, &withContext{in, metadata.NewIncomingContext(in.Context(), md)})
}

// withContext is a stream with another context.
type withContext struct {
	grpc.ServerStream
	ctx context.Context
}

// Context is grpc.ServerStream's.
func (w *withContext) Context() context.Context { return w.ctx }

// relay passes an RPC on to the server.
func (s *Sidecar) relay(l *life, in grpc.ServerStream) error {
	h, keyed := sliceletgrpc.HandleFrom(in.Context())
	if err := s.turnsAway(l, h, keyed); err != nil {
		return err
	}
	if s.slots != nil {
		// To admission RPCs that are passed on are streams, of which it would not hear.
		l.slicelet.Admission().Begin()
		began := time.Now()
		ok, waited := s.slots.take(in.Context())
		defer func() {
			l.slicelet.Admission().End(in.Context(), began, time.Now(), !ok && in.Context().Err() == nil)
		}()
		switch {
		case ok:
			defer s.slots.release()
		case in.Context().Err() != nil:
			return status.FromContextError(in.Context().Err()).Err()
		default:
			return sliceletgrpc.Overloaded(in.Context())
		}
		if waited {
			if err := s.turnsAway(l, h, keyed); err != nil {
				return err
			}
		}
	}
	var token assignment.Generation
	if keyed && l.slicelet.Mode() == assignment.Consistent {
		token = h.FencingToken()
	}
	err := s.paths.relay.Pass(in, generationOf(l), token)
	if _, unsent := errors.AsType[*clerkgrpc.UnsentError](err); unsent {
		s.suspect()
		return s.refusal(l, keyed)
	}
	return err
}

// turnsAway is the error of an RPC that is not for the server.
func (s *Sidecar) turnsAway(l *life, h slicelet.Handle, keyed bool) error {
	switch dead, lost := s.fit(l, h, keyed); {
	case dead:
		return s.refusal(l, keyed)
	case lost:
		return refused(l)
	}
	return nil
}

func generationOf(l *life) assignment.Generation {
	if a := l.slicelet.Assignment(); a != nil {
		return a.Generation()
	}
	return 0
}

// refusal is of an RPC that has not gone to the server, which is dead.
func (s *Sidecar) refusal(l *life, keyed bool) error {
	if keyed {
		return refused(l)
	}
	return clerk.Overloaded{Job: s.cfg.Slicelet.Job, Task: l.slicelet.Task(), Elsewhere: true}.GRPCStatus().Err()
}

func refused(l *life) error {
	r := clerk.Refused{Task: l.slicelet.Task()}
	if a := l.slicelet.Assignment(); a != nil {
		r.Job, r.Generation = a.Job(), a.Generation()
	}
	return status.ErrorProto(r.GRPCStatus().Proto())
}

// drainGRPC drains and ends an incarnation.
func (s *Sidecar) drainGRPC(ctx context.Context, l *life) error {
	return sliceletgrpc.Drain(ctx, l.slicelet, l.grpc.server, l.grpc.health)
}

// door takes connections for one gRPC server after the other.
type door struct{ conns chan net.Conn }

func newDoor() *door { return &door{conns: make(chan net.Conn)} }

// Serve takes connections for gRPC until lis is closed.
func (s *Sidecar) Serve(lis net.Listener) error {
	for {
		c, err := lis.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		} else if err != nil { // such as too many open files
			time.Sleep(acceptAgain)
			continue
		}
		select {
		case s.door.conns <- c:
		case <-s.over:
			_ = c.Close()
		}
	}
}

func (d *door) listener() net.Listener { return &share{d: d, closed: make(chan struct{})} }

// share is a net.Listener of what comes in by the door.
type share struct {
	d      *door
	once   sync.Once
	closed chan struct{}
}

// Accept is net.Listener's.
func (l *share) Accept() (net.Conn, error) {
	select {
	case c := <-l.d.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close is net.Listener's.
func (l *share) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is net.Listener's.
func (l *share) Addr() net.Addr { return &net.TCPAddr{} }
