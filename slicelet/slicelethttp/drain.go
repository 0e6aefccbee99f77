package slicelethttp

import (
	"context"
	"net/http"
	"time"

	"github.com/slicer-project/slicer/slicelet"
)

const (
	// DrainTimeout bounds a drain whose context has no deadline.
	DrainTimeout = time.Minute
	// maxReserve bounds how much of the time that is left a drain keeps for requests
	// that are being served, which is a quarter.
	maxReserve = 10 * time.Second
)

// Drain ends a server in the order in which no request is lost, and returns when
// it has ended:
//
//  1. The task's slices move to others, and clients learn of it (Slicelet.Drain).
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
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DrainTimeout)
		defer cancel()
	}
	err := drainSlices(ctx, s)
	if down := server.Shutdown(ctx); down != nil {
		_ = server.Close()
		if err == nil {
			err = down
		}
	}
	if closed := s.Close(); err == nil {
		err = closed
	}
	return err
}

func drainSlices(ctx context.Context, s *slicelet.Slicelet) error {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/4, maxReserve)))
	defer cancel()
	return s.Drain(ctx)
}
