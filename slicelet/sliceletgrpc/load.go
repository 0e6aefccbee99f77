package sliceletgrpc

import (
	"sync"
	"sync/atomic"
	"time"

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

// load measures what clients are told of the server's load.
type load struct {
	recorder orca.ServerMetricsRecorder
	source   func() float64

	requests, errors atomic.Uint64
	due              atomic.Int64 // Unix nanoseconds
	busy             atomic.Bool

	mu               sync.Mutex
	since            time.Time
	requests0, errs0 uint64
}

// count counts an RPC and says whether it should carry the load.
func (l *load) count(now time.Time, failed bool) bool {
	n := l.requests.Add(1)
	if failed {
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
	n, e := l.requests.Load(), l.errors.Load()
	if took := now.Sub(l.since).Seconds(); !l.since.IsZero() && took > 0 {
		rate := float64(n-l.requests0) / took
		l.busy.Store(rate > busyRate)
		l.recorder.SetQPS(rate)
		l.recorder.SetEPS(float64(e-l.errs0) / took)
		if u := l.source(); u > 0 {
			l.recorder.SetApplicationUtilization(u)
		}
	}
	l.since, l.requests0, l.errs0 = now, n, e
}
