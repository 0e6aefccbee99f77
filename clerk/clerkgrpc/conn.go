package clerkgrpc

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/internal/flight"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// loadReport is the trailing metadata of ORCA load reports (gRFC A51), of which most answers have
// none. Package orca makes balancer.DoneInfo.ServerLoad of it, but looks for it in another way, in
// all answers of all clients of the process.
const loadReport = "endpoint-load-metrics-bin"

// connKey is what makes two tasks of two assignments the same to a connection.
type connKey struct{ name, address string }

// conn is the connection to a task, or its absence.
type conn struct {
	// What picks look at, without a lock. ready is nil unless RPCs can be sent.
	ready       atomic.Pointer[subConn]
	condition   atomic.Uint32 // policy.Condition
	outstanding atomic.Int64  // counted only where the policy needs it
	weight      atomic.Uint64 // bits of a float64, only for weighted policies
	// inFlight is what the task has said is under way there, and inFlightAt when, in
	// nanoseconds since epoch.
	inFlight, inFlightAt atomic.Int64
	// What picks leave behind: a call waits for a connection, or would use it if
	// it could be had; and that it was used or asked for.
	wanted, used atomic.Bool
	// told is the generation that the task was told last, by a unary RPC. It is told again now and
	// then, as that may not have reached it.
	told atomic.Pointer[generation]
	// done is told of each RPC's end, and ended of its priority, too.
	done  func(balancer.DoneInfo)
	ended func(balancer.DoneInfo, overload.Priority)
	// throttle is what the task has said that it refuses.
	throttle *clerk.Throttle

	// The rest is guarded by the balancer's lock.
	task assignment.Task
	// flights are of the task's incarnation, until it is said to be dead.
	flights *flight.Group
	warm    bool
	left    bool // was warm before
	sub     *subConn
	state   connectivity.State
	since   time.Time // when state became Connecting
	// failing is from the first failure, or from when connecting took too long, to
	// the next success: to try again does not make a task fit (gRFC A62).
	failing bool
	counted bool // as opened, by the clerk
	err     error
	idle    int // sweeps that found it unused

	mu          sync.Mutex
	utilization policy.Utilization
}

// subConn is one of a conn's connections, one after the other.
type subConn struct{ sc balancer.SubConn }

// follows takes over what an assignment says of the task. If it says that the
// incarnation is dead, it returns what is under way there and need not wait for it
// any more. RPCs that are sent to a dead task all the same do wait.
func (c *conn) follows(task assignment.Task) (over *flight.Group) {
	if task.Incarnation != c.task.Incarnation || task.State == assignment.TaskDead && c.task.State != assignment.TaskDead {
		over, c.flights = c.flights, new(flight.Group)
	}
	c.task = task
	return over
}

// want asks for a connection. It reports whether it is the first to ask.
func (c *conn) want() bool {
	c.use()
	return !c.wanted.Load() && c.wanted.CompareAndSwap(false, true)
}

// use says that there is something to send.
func (c *conn) use() {
	if !c.used.Load() {
		c.used.Store(true)
	}
}

// follow makes the condition that picks see fit the state.
func (c *conn) follow() {
	switch {
	case c.failing && c.state != connectivity.Ready:
		c.condition.Store(uint32(policy.Failing))
	case c.state == connectivity.Ready:
		c.condition.Store(uint32(policy.Ready))
	case c.state == connectivity.Connecting:
		c.condition.Store(uint32(policy.Connecting))
	default:
		c.condition.Store(uint32(policy.Idle))
	}
}

// opened and closed tell the clerk, once each.
func (c *conn) opened(ck *clerk.Clerk) {
	if c.counted {
		return
	}
	c.counted = true
	if c.warm {
		ck.ConnectionOpened(clerk.OpenWarm)
	} else {
		ck.ConnectionOpened(clerk.OpenOnDemand)
	}
}

func (c *conn) closed(ck *clerk.Clerk, why clerk.CloseCause) {
	if c.counted {
		c.counted = false
		ck.ConnectionClosed(why)
	}
}

// epoch is where the times of utilization count from.
var epoch = time.Now()

// measure sets done and ended for a policy.
func (c *conn) measure(k policy.Kind) {
	c.done = func(info balancer.DoneInfo) { c.ended(info, overload.Priorities) }
	counts, weighs := counts(k), k == policy.Weighted || k == policy.WeightedLeastLoaded
	c.ended = func(info balancer.DoneInfo, p overload.Priority) {
		if counts {
			c.outstanding.Add(-1)
		}
		c.throttle.Over()
		c.hear(info)
		refused := c.refused(info)
		if refused {
			c.throttle.Watch()
		}
		c.throttle.Ended(info.Err != nil && c.speaksAgainst(info.Err, p, refused))
		if weighs {
			if said := info.Trailer[loadReport]; len(said) == 1 {
				if load := new(orcav3.OrcaLoadReport); proto.Unmarshal([]byte(said[0]), load) == nil {
					c.reported(load)
				}
			}
		}
	}
}

// refused reports whether the task itself has refused an RPC, and has not said which others
// it would.
func (c *conn) refused(info balancer.DoneInfo) bool {
	return info.Err != nil && info.BytesReceived && c.throttle.Refused(info.Err)
}

// speaksAgainst reports whether an error is one that a healthy task would not give to an RPC of
// this priority, if that is known: it says that it has broken down, or nothing in time, or that
// it has no room for what it does not say that it refuses.
func (c *conn) speaksAgainst(err error, p overload.Priority, refused bool) bool {
	switch code := status.Code(err); code {
	case codes.Unavailable, codes.ResourceExhausted:
		full, ok := clerk.OverloadedFromStatus(err)
		if !ok {
			return code == codes.Unavailable || refused
		}
		return c.throttle.Of(full) && !full.Said(p)
	case codes.Unknown, codes.Internal, codes.DataLoss, codes.Unimplemented, codes.DeadlineExceeded:
		return true
	}
	return false
}

// counts reports whether a policy goes by how many RPCs are under way.
func counts(k policy.Kind) bool { return k == policy.LeastLoaded || k == policy.WeightedLeastLoaded }

const (
	// inFlightMetric is that of package sliceletgrpc.
	inFlightMetric = "slicer.in_flight"
	// inFlightFor is how long it is believed: a task that had much to do gets no RPCs
	// whose answers would say that it has done it.
	inFlightFor = time.Second
)

// underWay is what the task has said lately, 0 if nothing.
func (c *conn) underWay() float64 {
	n := c.inFlight.Load()
	if n == 0 || time.Since(epoch)-time.Duration(c.inFlightAt.Load()) > inFlightFor {
		return 0
	}
	return float64(n)
}

// hear takes what an answer says of the task's level.
func (c *conn) hear(info balancer.DoneInfo) {
	if info.Err == nil {
		c.throttle.HearDraining(len(info.Trailer[DrainingHeader]) > 0)
	}
	said := info.Trailer[LevelHeader]
	switch {
	case len(said) > 0:
		c.throttle.Hear(overload.ParseLevel(said[len(said)-1]))
	case info.Err == nil:
		c.throttle.Hear(overload.Level{})
	default:
		if full, ok := clerk.OverloadedFromStatus(info.Err); ok {
			c.throttle.HearRefusal(full)
		}
	}
}

func (c *conn) reported(load *orcav3.OrcaLoadReport) {
	r := policy.Report{Utilization: load.GetApplicationUtilization(), Requests: load.GetRpsFractional(), Errors: load.GetEps()}
	if !(r.Utilization > 0) {
		r.Utilization = load.GetCpuUtilization()
	}
	now := time.Since(epoch)
	if n, ok := load.GetNamedMetrics()[inFlightMetric]; ok {
		c.inFlight.Store(int64(min(max(n, 0), math.MaxInt32)))
		c.inFlightAt.Store(int64(now))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.utilization.Report(now, r)
	c.weight.Store(math.Float64bits(c.utilization.Weight(now)))
}

// age takes the weight back when the reports are old.
func (c *conn) age() {
	now := time.Since(epoch)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.weight.Store(math.Float64bits(c.utilization.Weight(now)))
}
