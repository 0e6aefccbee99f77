package sliceletgrpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/internal/drain"
)

const (
	// drainDelay is from when clients are told that the server does not serve to
	// when it stops to accept: for those that hear of it by asking.
	drainDelay = 500 * time.Millisecond
	// DrainTimeout bounds a drain whose context has no deadline.
	DrainTimeout = drain.Timeout
)

// Drain ends a server in the order in which no RPC is lost, and returns when it
// has ended:
//
//  1. The task's slices move to others, and clients learn of it (Slicelet.Drain).
//     A task that is alone in its job goes on after 5 s, which is no error.
//  2. The health service, if h is not nil, says NOT_SERVING, and half a second
//     passes.
//  3. The server stops to accept RPCs and ends those that it has
//     (Server.GracefulStop).
//  4. The slicelet is closed.
//
// If ctx ends first, the server and the RPCs that are left end at once. The error
// is the first of those of the slicelet, a *slicelet.DrainError, and of ctx; the
// server has ended all the same. Of the time that ctx leaves, a quarter but at
// most 10 s is kept for the third step. A ctx without a deadline gets one after
// DrainTimeout.
func Drain(ctx context.Context, s *slicelet.Slicelet, server *grpc.Server, h *health.Server) error {
	return drain.Run(ctx, s, func(ctx context.Context) error {
		if h != nil {
			h.Shutdown()
			backoff.Sleep(ctx, drainDelay)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			server.GracefulStop()
		}()
		select {
		case <-stopped:
			return nil
		case <-ctx.Done():
			server.Stop()
			<-stopped
			return context.Cause(ctx)
		}
	})
}
