package distributor

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/limiter"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxStreams is how many calls are answered at a time on one connection.
const maxStreams = 1000

// pingTimeout is how long a subscriber may take to answer a ping, or to acknowledge
// what it was sent.
const pingTimeout = 10 * time.Second

// ServerOptions are what a server with ten thousand subscribers on it should be
// made with: small buffers, since most connections are idle most of the time;
// pings that find dead subscribers within half a minute and are not offended by
// those of subscribers, at least 5 s apart. On a connection that came through Admit at
// most 1,000 calls are answered at a time, streams included; more are refused with
// RESOURCE_EXHAUSTED, and after 1,000 refusals the connection is closed. Distributors of the second tier are not limited so.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ReadBufferSize(4 << 10),
		// Lent to a connection only while it has something to write.
		grpc.WriteBufferSize(16 << 10),
		// What subscribers send is small: no window needs to grow.
		grpc.StaticStreamWindowSize(64 << 10),
		grpc.StaticConnWindowSize(128 << 10),
		// A Distributor of the second tier sends reports in batches.
		grpc.MaxRecvMsgSize(fanout.MaxBatch + fanout.MaxReport + 64<<10),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(maxStreams + 100),
		grpc.ChainUnaryInterceptor(limitUnary),
		grpc.ChainStreamInterceptor(limitStream),
	}
}

// enterCall counts a call of a connection in. Anything but a subscription tells by its
// being called that the connection has been set up.
func enterCall(ctx context.Context, method string) (leave func(), err error) {
	h := limiter.HandshakeOf(ctx)
	if h == nil {
		return func() {}, nil
	}
	if method != slicerv1.SubscriberService_Watch_FullMethodName {
		h.Release()
	}
	if strings.HasPrefix(method, "/"+slicerv1.RelayService_ServiceDesc.ServiceName+"/") {
		return func() {}, nil
	}
	if n := h.Streams.Add(1); n > maxStreams {
		h.Streams.Add(-1)
		refused(h)
		return nil, status.Errorf(codes.ResourceExhausted, "%d calls and streams on one connection, no more are answered at a time: open another connection", maxStreams)
	}
	return func() { h.Streams.Add(-1) }, nil
}

// refused counts a call that was refused for its client's having too many. A connection
// on which that goes on is closed: refusing costs time, too.
func refused(h *limiter.Handshake) {
	if h != nil && h.Refused.Add(1) == maxStreams {
		h.Drop()
	}
}

func limitUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	leave, err := enterCall(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer leave()
	return handler(ctx, req)
}

func limitStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	leave, err := enterCall(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer leave()
	return handler(srv, stream)
}
