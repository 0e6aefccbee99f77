package slicelethttp

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/slicelet/internal/moved"
)

// DefaultMovedGrace is how long a request may go on after Moved unless Config says otherwise.
const DefaultMovedGrace = moved.Grace

// ErrMoved is the cause with which the context of a request ends that Config.EndMoved ends.
var ErrMoved = moved.ErrMoved

// Moved returns a channel that is closed when the key of the request has moved to another task, so
// that a handler that goes on for long can come to an end of its own: nil if the request has no
// key. It is also closed for a request of Config.EndMoved that was sent here by a client that is
// behind, some time after it has begun.
func Moved(ctx context.Context) <-chan struct{} {
	v, _ := ctx.Value(handleOfContext{}).(*visit)
	if v == nil || !v.keyed {
		return nil
	}
	return v.moved.C(v.handle)
}

// LongLived reports whether a request asks for something that may go on for ever: an upgrade of its
// connection, as WebSockets do, or server-sent events. It is for Config.EndMoved.
func LongLived(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" || strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

// limit makes a request end when its key has moved. The context is the visit's, which it changes.
func (v *visit) limit(r *http.Request, behind bool) {
	ctx, cancel := context.WithCancelCause(v.Context)
	v.Context = ctx
	webSocket := strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
	v.hijacked = func(c net.Conn) net.Conn {
		up := &upgraded{Conn: c, webSocket: webSocket, closed: v.moved.Stop}
		v.upgraded.Store(up)
		return up
	}
	v.moved.EndAfter(v.handle, v.gate.cfg.MovedGrace, behind, func() {
		v.over.Store(true)
		cancel(ErrMoved)
		if up := v.upgraded.Load(); up != nil {
			up.end()
			return
		}
		// A handler that waits for the client's next bytes does not wait any longer.
		_ = http.NewResponseController(v.writer).SetReadDeadline(time.Unix(1, 0))
	})
}

// endMoved answers a request that was ended, unless the connection is the handler's.
func (g *gate) endMoved(v *visit, r *http.Request) {
	if v.upgraded.Load() != nil {
		return
	}
	g.metrics.moved.Inc()
	if v.code != 0 {
		panic(http.ErrAbortHandler) // so that the client does not take a part for the whole
	}
	v.code = http.StatusConflict
	h := v.writer.Header()
	clear(h)
	v.notAgain(r)
	h.Set(httpkey.HeaderLost, g.slicelet.Task())
	job, generation := describe(g.slicelet.Assignment())
	h.Set(httpkey.HeaderGeneration, generation)
	http.Error(v.writer, fmt.Sprintf("slicer: the key of the request has moved from task %q of job %q: send it again", g.slicelet.Task(), job), http.StatusConflict)
}

// notAgain has the connection closed after the answer to a request that was ended: in HTTP/1 the
// read that was broken off has ended the contexts of all requests that would come on it.
func (v *visit) notAgain(r *http.Request) {
	if v.over.Load() && r.ProtoMajor == 1 {
		v.writer.Header().Set("Connection", "close")
	}
}
