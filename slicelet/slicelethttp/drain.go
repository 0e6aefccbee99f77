package slicelethttp

import (
	"context"
	"net/http"

	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/internal/drain"
)

// DrainTimeout bounds a drain whose context has no deadline.
const DrainTimeout = drain.Timeout

// Drain ends a server in the order in which no request is lost, and returns when
// it has ended:
//
//  1. The task's slices move to others, and clients learn of it (Slicelet.Drain).
//     A task that is alone in its job goes on after 5 s, which is no error.
//  2. The server stops to accept requests and ends those that it has
//     (Server.Shutdown); connections that were hijacked, such as WebSockets, it
//     leaves to their handlers.
//  3. The slicelet is closed.
//
// If ctx ends first, the server and the requests that are left end at once. The
// error is the first of those of the slicelet, a *slicelet.DrainError, and of ctx;
// the server has ended all the same. Of the time that ctx leaves, a quarter but at
// most 10 s is kept for the second step. A ctx without a deadline gets one after
// DrainTimeout.
func Drain(ctx context.Context, s *slicelet.Slicelet, server *http.Server) error {
	return drain.Run(ctx, s, func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if err != nil {
			_ = server.Close()
		}
		return err
	})
}
