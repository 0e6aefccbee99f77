package slicelet

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet/quota"
)

// take takes how much of the job's limits the task may use, nil if there are none.
func (a *arrivals) take(now time.Time, q *wire.Quotas) {
	if q == nil {
		q = new(wire.Quotas)
	}
	a.accounts.SetLimits(now, q.Limits, q.Shares)
}

// customers is what customers have asked for since it was last called, nil if nothing.
func (s *Slicelet) customers(now time.Time) *slicerv1.CustomerUse {
	st := s.sub.State()
	a := s.arrivals.accounts
	a.Look(now, st.Link == subscriber.Distributor, tasksOf(st.Assignment), st.Status.LoadMetric, s.recorder.workOf())
	uses, names := a.Report(now)
	return wire.UseToProto(uses, names)
}

// tasksOf is how many tasks there are to use a limit, 0 if that is not known. A part of an assignment
// does not have all of them: there it is as if each had as much of the keyspace as this one.
func tasksOf(a *assignment.Assignment) int {
	switch {
	case a == nil:
		return 0
	case a.Part() == "":
		return a.NumTasks()
	}
	own := 0.0
	for s, r := range a.All() {
		if n := r.Len(); n > 0 {
			own += s.Fraction() / float64(n)
		}
	}
	if own == 0 {
		return 0
	}
	return int(math.Round(1 / own))
}

// workOf is how much CPU time a second's work of a handler takes, by the last window, 0 if
// that is not known.
func (r *recorder) workOf() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.perSecond
}

// Charge is what a request is charged to its customer. The zero value charges nothing. It must
// not be copied once it has been charged.
type Charge struct {
	account *quota.Account
	cost    float64
	said    atomic.Uint64 // by Spend, math.Float64bits
}

// Charge charges a request that arrives now to the customer of its labels, and reports whether
// the customer's limit lets it in: what does not has to be refused, and may not be sent to
// another task. The labels' criticality becomes what the customer may have at most. Of the
// arrival the key does not count. It is for servers that are not of package sliceletgrpc or
// slicelethttp, whose handlers call it, before they ask Admit. It takes a lock of the
// customer's, does not block, and does not allocate but for a customer's first request.
func (a Admission) Charge(now time.Time, c *Charge, r *Arrival) (ok bool) {
	x := a.s.arrivals.accounts.Find(now, r.Labels.Customer)
	if x == nil {
		return true
	}
	if most := x.MaxCriticality(); most != 0 && r.Labels.Priority().Criticality() > most {
		r.Labels.Criticality = most
	}
	cost, ok := x.Charge(now, r.Labels.Priority().Criticality(), min(r.StandsFor, overload.MostStandsFor)-1)
	if ok {
		c.account, c.cost = x, cost
	}
	return ok
}

// Cancel takes back what was charged, for a request that was refused for another reason.
func (c *Charge) Cancel() {
	if c.account != nil {
		c.account.Cancel(c.cost)
		c.account = nil
	}
}

// Spend says that the request has cost so much more, in units of the job's load metric. What
// is not above 0, or infinite, is ignored.
func (c *Charge) Spend(units float64) {
	if c.account == nil || !(units > 0) || math.IsInf(units, 0) {
		return
	}
	for {
		old := c.said.Load()
		if c.said.CompareAndSwap(old, math.Float64bits(min(math.Float64frombits(old)+units, wire.MaxRate))) {
			return
		}
	}
}

// Done is the end of a request whose handler has worked for so long.
func (c *Charge) Done(took time.Duration) {
	if c.account != nil {
		c.account.Done(c.cost, took, math.Float64frombits(c.said.Load()))
	}
}
