package sliceletgrpc

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet/internal/moved"
)

// DefaultMovedGrace is how long a stream may go on after Moved unless Config says otherwise.
const DefaultMovedGrace = moved.Grace

// ErrMoved is the cause with which the context of a stream ends that Config.EndMoved ends.
var ErrMoved = moved.ErrMoved

// Moved returns a channel that is closed when the key of the RPC has moved to another task, so that
// a handler that goes on for long can come to an end of its own: nil if the RPC has no key, or none
// yet, as a stream whose key is in its first message. It is also closed for a stream with
// Config.EndMoved that was sent here by a client that is behind, some time after it has begun.
func Moved(ctx context.Context) <-chan struct{} {
	c, _ := ctx.Value(callOfContext{}).(*call)
	if c == nil || !c.keyed {
		return nil
	}
	return c.moved.C(c.handle)
}

// limit makes a stream end when its key has moved. Its key is known.
func (s *stream) limit() {
	s.call.moved.EndAfter(s.call.handle, s.call.gate.cfg.MovedGrace, s.call.behind, func() {
		close(s.ended)
		s.cancel(ErrMoved)
	})
}

// isOver reports whether the stream has been ended.
func (s *stream) isOver() bool {
	select {
	case <-s.ended: // nil if it cannot be
		return true
	default:
		return false
	}
}

// receive is RecvMsg, but returns when the stream has been ended. What waits for the client's
// message then ends with the stream, when the handler has returned, as it does for handlers that
// receive in a goroutine of their own.
func (s *stream) receive(m any) error {
	if s.ended == nil || !s.call.keyed {
		return s.ServerStream.RecvMsg(m)
	}
	got := make(chan error, 1)
	go func() { got <- s.ServerStream.RecvMsg(m) }()
	select {
	case err := <-got:
		return err
	case <-s.ended:
		return s.call.gate.movedStatus().Err()
	}
}

// movedStatus is how a stream ends whose key has moved.
func (g *gate) movedStatus() *status.Status {
	m := &slicerv1.OwnershipLost{Task: g.slicelet.Task()}
	if a := g.slicelet.Assignment(); a != nil {
		m.Job, m.Generation = a.Job(), int64(a.Generation())
	}
	return detailed(codes.Aborted, fmt.Sprintf("the key of the stream has moved from task %q of job %q: connect again", m.Task, m.Job), m)
}
