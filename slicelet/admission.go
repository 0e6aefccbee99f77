package slicelet

import (
	"context"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet/internal/admission"
)

// Admission decides which requests the task has no room for. The handlers of packages
// sliceletgrpc and slicelethttp ask it; so may servers of other kinds. All methods are safe
// for concurrent use.
type Admission struct{ s *Slicelet }

// Admission is the task's.
func (s *Slicelet) Admission() Admission { return Admission{s} }

// Arrival is what counts of a request when it is decided whether there is room for it.
type Arrival struct {
	Labels overload.Labels
	// StandsFor is what a trial request says of itself (overload.TaskLevel.Send), 0 for
	// others.
	StandsFor int
	// Peer tells apart what requests come from, such as connections: a hash of their addresses,
	// say. Trial requests of a peer stand for at most ten times what comes from it, or one client
	// could make a task refuse what there is room for. 0 is one of them.
	Peer uint64
	// Key is the request's if Keyed. It need not be given unless StandsFor is above 1, or
	// HeavyKeys says so.
	Key   assignment.SliceKey
	Keyed bool
}

// HeavyKeys reports whether some keys ask for more than their part (overload.HeavyKeys): then
// Admit goes by keys, too.
func (a Admission) HeavyKeys() bool { return a.s.recorder.heavy.Load() != nil }

// Admit decides whether the task has room for a request that arrives now; of ctx the deadline
// counts. It is for servers that are not of package sliceletgrpc or slicelethttp, whose
// handlers call it: before they start a goroutine for the request, which they have to if it
// is served. Anything but overload.Served is only returned if the job's admission is on. now
// is time.Now's. It does not block, and does not allocate but for a goroutine of its own, at
// most once a millisecond.
func (a Admission) Admit(ctx context.Context, now time.Time, r Arrival) overload.Verdict {
	mode := a.s.sub.State().Status.Overload.Admission
	if mode == assignment.AdmissionOff {
		return overload.Served
	}
	left := time.Duration(0) // none
	if by, ok := ctx.Deadline(); ok {
		if left = by.Sub(now); left == 0 {
			left = -1
		}
	}
	if most := a.s.arrivals.patience; most > 0 && (left == 0 || left > most) {
		left = most
	}
	c, p := a.s.arrivals.control, r.Labels.Priority()
	if a.s.arrivals.peers.arrived(r.Peer); r.StandsFor > 1 {
		a.held(c, p, r)
	}
	return c.Admit(now, a.rank(p, r), r.StandsFor > 0, left, mode != assignment.AdmissionOn)
}

// rank is the priority by which a request is admitted.
func (a Admission) rank(p overload.Priority, r Arrival) overload.Priority {
	if !r.Keyed {
		return p
	}
	return a.s.recorder.heavy.Load().Rank(p, r.Key)
}

// held counts what a trial request stands for besides itself, as requests for its key and of
// its criticality.
func (a Admission) held(c *admission.Controller, p overload.Priority, r Arrival) {
	n := a.s.arrivals.peers.standsFor(r.Peer, min(r.StandsFor, overload.MostStandsFor)-1)
	held := false
	c.Limits().StandIns(p, n, func(at overload.Priority, n int) {
		c.Held(a.rank(at, r), n)
		held = true
	})
	if held && r.Keyed && isDemand(r.Labels) {
		v := a.s.view.Load()
		a.s.meter.held(r.Key, v.metered, v.metered.find(r.Key), float64(n))
	}
}

// Outdated reports whether a request for which Admit had room is to be refused after all, as a
// handler is to begin with it now: it was let in before it was known that far more is asked for than
// the task can do, and more critical ones wait behind it. It is counted then, in metrics as served
// and as shed.
func (a Admission) Outdated(now time.Time, l overload.Labels) bool {
	return a.s.sub.State().Status.Overload.Admission == assignment.AdmissionOn && a.s.arrivals.control.Outdated(now, l.Priority())
}

// Begin counts a request on which a handler begins to work, and End that it has ended: as
// many of both. Where handlers wait for something else than the CPU, such as a pool of
// connections, that is what says that there is no room: many end after their deadline, or
// refuse. Leave out streams that stay open.
func (a Admission) Begin() { a.s.arrivals.control.Begin() }

// End is the end of what began with Begin, whose deadline was that of ctx. refused: the handler itself
// found no room for the request.
func (a Admission) End(ctx context.Context, began, now time.Time, refused bool) {
	const near = 20 * time.Millisecond // the client's deadline is a little earlier, the end a little later
	how := admission.InTime
	if by, ok := ctx.Deadline(); refused {
		how = admission.Refused
	} else if ok && ctx.Err() != nil && now.After(by.Add(-near)) {
		if how = admission.GaveUp; now.After(by.Add(near)) {
			how = admission.Missed
		}
	}
	a.s.arrivals.control.End(how, now.Sub(began))
}

// Level is what clients are to be told, in each answer while it is not the zero value: what
// they need not send, as it would be refused. It is the zero value if the job's admission is
// not on.
func (a Admission) Level() overload.Level {
	if a.s.sub.State().Status.Overload.Admission != assignment.AdmissionOn {
		return overload.Level{}
	}
	return a.s.arrivals.control.Limits().Level
}

// Pressure is how near a request with these labels is to being refused, 0 to 1
// (overload.Pressure); 0 if the job's admission is off.
func (a Admission) Pressure(l overload.Labels) float64 {
	if a.s.sub.State().Status.Overload.Admission == assignment.AdmissionOff {
		return 0
	}
	c := a.s.arrivals.control
	return c.Limits().Pressure(l.Priority(), c.Queue())
}
