package clerkhttp

import (
	"context"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/slicer-project/slicer/clerk/internal/flight"
)

// errSlow is why an attempt ends whose task has not begun to answer in time.
var errSlow error = slowError{}

type slowError struct{}

func (slowError) Error() string        { return "the task has not begun to answer in time" }
func (slowError) Timeout() bool        { return true }
func (slowError) Is(target error) bool { return target == context.DeadlineExceeded }

// watch ends an attempt whose task does not begin to answer within
// Config.ResponseTimeout. A request that could go to another task, were there not too
// many retries already, goes on waiting instead, for as long as it might have waited
// at all the tasks together: to give it up would serve nothing.
type watch struct {
	r     *trip
	f     *flight.Flight
	limit time.Duration
	leave bool          // it may go to another task
	more  time.Duration // how long it waits after limit if it may not

	mu    sync.Mutex
	timer *time.Timer // nil before the request is written
	over  bool
}

// trace begins the watch when the request has been written.
func (w *watch) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.timer == nil && !w.over {
			w.timer = time.AfterFunc(w.limit, w.expired)
		}
	}})
}

func (w *watch) expired() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.over:
	case w.leave && w.r.t.clerk.MayRetry():
		w.r.paid = true
		w.f.Fail(errSlow)
	case w.leave:
		w.leave = false
		w.timer.Reset(w.more)
	default:
		w.f.Fail(errSlow)
	}
}

// end ends it, after which the attempt is left alone.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
