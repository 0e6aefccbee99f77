package sliceletgrpc

import (
	"context"
	"hash/maphash"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

const (
	// loadInterval is how often the load that clients are told is measured.
	loadInterval = time.Second
	// tellEvery is how often the clients of a connection are told: it costs more than all
	// else here. One in sixteen RPCs, as it was before, is too few for clients that ask
	// seldom.
	tellEvery = 100 * time.Millisecond
	// quiet is after how long a connection without RPCs is forgotten: longer than the half minute after
	// which clients say again, by default, by which generation they route.
	quiet = 45 * time.Second
	// inFlight is the named metric that says how many RPCs are under way.
	inFlight = "slicer.in_flight"
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

	served, errors atomic.Uint64
	due            atomic.Int64 // Unix nanoseconds
	underWay       atomic.Int64 // of unary RPCs
	connections    sync.Map     // *connection by net.Addr

	mu               sync.Mutex
	since            time.Time
	served0, errors0 uint64
}

// count counts an RPC that came from a connection.
func (l *load) count(now time.Time, from *connection, o outcome) {
	switch o {
	case served:
		l.served.Add(1)
	case failed:
		l.errors.Add(1)
	}
	if due := l.due.Load(); now.UnixNano() >= due && l.due.CompareAndSwap(due, now.Add(loadInterval).UnixNano()) {
		l.measure(now)
		l.connections.Range(func(addr, c any) bool {
			if c := c.(*connection); c != from && now.UnixNano()-c.told.Load() > int64(quiet) {
				l.connections.Delete(addr)
			}
			return true
		})
	}
}

// connection is one that RPCs come from.
type connection struct {
	id   uint64       // tells it apart (slicelet.Arrival.Peer)
	told atomic.Int64 // when its client was last told the load, Unix nanoseconds
	// generation is what a unary RPC said last that it was routed by, 0 if none did.
	generation atomic.Int64
	// refused is the call of one that was refused, for the next RPC.
	refused atomic.Pointer[call]
}

// call is that of a new RPC. It may be called of nil.
func (c *connection) call() *call {
	if c != nil {
		if spare := c.refused.Swap(nil); spare != nil {
			return spare
		}
	}
	return new(call)
}

// spare takes the call of an RPC that was refused before anything else came to know it. It may be called of nil.
func (c *connection) spare(of *call) {
	if c != nil {
		of.Context, of.labels, of.refused = nil, overload.Labels{}, nil
		c.refused.Store(of)
	}
}

var seed = maphash.MakeSeed()

// connectionOf is that of an RPC, nil if it is not known. All of a connection's RPCs have the same
// net.Addr.
func (l *load) connectionOf(ctx context.Context) *connection {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return nil
	}
	if _, ok := p.Addr.(*net.TCPAddr); !ok && !reflect.TypeOf(p.Addr).Comparable() {
		return nil // of a user's own
	}
	from, ok := l.connections.Load(p.Addr)
	if !ok {
		from, _ = l.connections.LoadOrStore(p.Addr, &connection{id: maphash.Comparable(seed, p.Addr)})
	}
	return from.(*connection)
}

// number may be called of nil.
func (c *connection) number() uint64 {
	if c == nil {
		return 0
	}
	return c.id
}

// routedBy is the generation that a unary RPC was routed by which says this one, 0 for none: then it is
// what the one before said. It may be called of nil.
func (c *connection) routedBy(says int64) int64 {
	switch {
	case c == nil || says < 0:
		return says
	case says == 0:
		return c.generation.Load()
	}
	c.generation.Store(says)
	return says
}

// tells reports whether an RPC should carry the load: the first of each connection in tellEvery.
func (c *connection) tells(now time.Time) bool {
	was := c.told.Load()
	return now.UnixNano()-was >= int64(tellEvery) && c.told.CompareAndSwap(was, now.UnixNano())
}

// loadReport is the trailing metadata of ORCA load reports (gRFC A51).
const loadReport = "endpoint-load-metrics-bin"

// tell has an RPC that ends carry the load, if it is its turn.
func (l *load) tell(ctx context.Context, from *connection, now time.Time) {
	if from == nil || !from.tells(now) {
		return
	}
	if r := orca.CallMetricsRecorderFromContext(ctx); r != nil { // which makes it part of the trailers
		r.SetNamedMetric(inFlight, float64(l.underWay.Load()))
		return
	}
	m := l.recorder.ServerMetrics()
	raw, err := proto.Marshal(&orcav3.OrcaLoadReport{
		ApplicationUtilization: max(m.AppUtilization, 0), RpsFractional: max(m.QPS, 0), Eps: max(m.EPS, 0),
		NamedMetrics: map[string]float64{inFlight: float64(l.underWay.Load())},
	})
	if err == nil {
		_ = grpc.SetTrailer(ctx, metadata.MD{loadReport: {string(raw)}}) // fails if it is too late
	}
}

func (l *load) measure(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	served, errors := l.served.Load(), l.errors.Load()
	if took := now.Sub(l.since).Seconds(); !l.since.IsZero() && took > 0 {
		l.recorder.SetQPS(float64(served-l.served0) / took)
		l.recorder.SetEPS(float64(errors-l.errors0) / took)
		if u := l.source(); u > 0 {
			l.recorder.SetApplicationUtilization(u)
		}
	}
	l.since, l.served0, l.errors0 = now, served, errors
}
