package limiter

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// MaxCalls is how many calls are answered at a time on one connection, streams included:
	// each costs three goroutines and some 20 KiB.
	MaxCalls = 1000
	// MaxCarried is how many gRPC lets any connection have: that of a carrier, see
	// HandshakesConfig, has the streams of many.
	MaxCarried = 10 * MaxCalls
)

// ServerOptions limit the calls of each connection that came through a listener of
// Handshakes to MaxCalls at a time, unless its Carrier allows it MaxCarried. More are refused with RESOURCE_EXHAUSTED, and after
// as many refusals the connection is closed. A call also releases its connection's
// Handshake, except one of the method held: its handler does that when the caller has
// been served. The calls of the services unlimited are not counted.
func ServerOptions(held string, unlimited ...string) []grpc.ServerOption {
	enter := func(ctx context.Context, method string) (leave func(), err error) {
		h := HandshakeOf(ctx)
		if h == nil {
			return func() {}, nil
		}
		if method != held {
			h.Release()
		}
		for _, service := range unlimited {
			if strings.HasPrefix(method, "/"+service+"/") {
				return func() {}, nil
			}
		}
		if h.calls.Add(1) > MaxCalls && !h.carries(ctx) {
			h.calls.Add(-1)
			h.Refuse()
			return nil, status.Errorf(codes.ResourceExhausted, "%d calls and streams on one connection, no more are answered at a time: open another connection", MaxCalls)
		}
		return func() { h.calls.Add(-1) }, nil
	}
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(MaxCarried + 100),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			leave, err := enter(ctx, info.FullMethod)
			if err != nil {
				return nil, err
			}
			defer leave()
			return handler(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			leave, err := enter(stream.Context(), info.FullMethod)
			if err != nil {
				return err
			}
			defer leave()
			return handler(srv, stream)
		}),
	}
}

// carries reports whether the connection's calls are those of many.
func (s *Handshake) carries(ctx context.Context) bool {
	return s.of.cfg.Carrier != nil && s.of.cfg.Carrier(ctx)
}

// Refuse counts a call that was refused since its client makes too many. A connection
// on which that goes on is closed: refusing costs time, too. It may be called on nil.
func (s *Handshake) Refuse() {
	if s != nil && s.refused.Add(1) == MaxCalls {
		s.of.drop(s.conn, DroppedStreams)
	}
}
