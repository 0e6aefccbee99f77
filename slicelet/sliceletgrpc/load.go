package sliceletgrpc

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/orca"
)

const (
	// loadInterval is how often the load that clients are told is measured.
	loadInterval = time.Second
	// One in sampled RPCs carries the load, if there are more than busyRate a second:
	// it costs more than all else here, and changes once a second.
	sampled  = 16
	busyRate = 200
)

// outcome is what an RPC says of the task.
type outcome uint8

const (
	served outcome = iota // the task has done its work
	failed                // the task could not do it
	idle                  // neither: the client is at fault or has gone, or the task does not own the key
)

// outcomeOf is that of an RPC that a handler has answered with a code. Clients weigh
// tasks by what they have served: what counted as served whatever came of it would draw
// requests to a task that fails at once. A code that is about the request is no sign
// that the task does its work, and none that it does not: a cache that knows few keys
// is not ill, and one that has lost all of them must not look quick.
func outcomeOf(code codes.Code) outcome {
	switch code {
	case codes.OK:
		return served
	case codes.Unknown, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		return failed
	}
	return idle
}

// load measures what clients are told of the server's load.
type load struct {
	recorder orca.ServerMetricsRecorder
	source   func() float64

	requests, served, errors atomic.Uint64
	due                      atomic.Int64 // Unix nanoseconds
	busy                     atomic.Bool

	mu                          sync.Mutex
	since                       time.Time
	requests0, served0, errors0 uint64
}

// count counts an RPC and reports whether it should carry the load.
func (l *load) count(now time.Time, o outcome) bool {
	n := l.requests.Add(1)
	switch o {
	case served:
		l.served.Add(1)
	case failed:
		l.errors.Add(1)
	}
	if due := l.due.Load(); now.UnixNano() >= due && l.due.CompareAndSwap(due, now.Add(loadInterval).UnixNano()) {
		l.measure(now)
	}
	return n%sampled == 0 || !l.busy.Load()
}

func (l *load) measure(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, served, errors := l.requests.Load(), l.served.Load(), l.errors.Load()
	if took := now.Sub(l.since).Seconds(); !l.since.IsZero() && took > 0 {
		l.busy.Store(float64(n-l.requests0)/took > busyRate)
		l.recorder.SetQPS(float64(served-l.served0) / took)
		l.recorder.SetEPS(float64(errors-l.errors0) / took)
		if u := l.source(); u > 0 {
			l.recorder.SetApplicationUtilization(u)
		}
	}
	l.since, l.requests0, l.served0, l.errors0 = now, n, served, errors
}
