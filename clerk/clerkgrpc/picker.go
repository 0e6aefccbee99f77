package clerkgrpc

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/internal/flight"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// table is a picker: an assignment, and the connections to its tasks. Only the
// connections change.
type table struct {
	job        *job
	kind       policy.Kind
	turns      *turns
	wake       chan struct{}
	few        *atomic.Int32 // see keyBalancer
	assignment *assignment.Assignment
	entries    []entry // by position in the assignment
	// any holds the positions of the running tasks of the subset: for RPCs without
	// a key, and for those whose owners cannot be reached.
	any        []uint32
	generation *generation
}

type entry struct {
	conn               *conn
	flights            *flight.Group // of the incarnation that the assignment names
	draining, inSubset bool
}

func (e *entry) candidate(t tried, p overload.Priority, customer string) policy.Candidate {
	return policy.Candidate{
		Condition: policy.Condition(e.conn.condition.Load()), Draining: e.draining || e.conn.throttle.Draining(), InSubset: e.inSubset,
		Outstanding: e.conn.outstanding.Load(), Weight: math.Float64frombits(e.conn.weight.Load()),
		InFlight: e.conn.underWay(), Failed: e.conn.throttle.Failed(),
		Full: e.conn.throttle.Holds(p, customer), Tried: t.has(e.conn),
	}
}

// owners are the candidates for a key.
type owners struct {
	t        *table
	of       assignment.Replicas
	tried    tried
	priority overload.Priority
	customer string
}

func (o owners) Len() int { return o.of.Len() }
func (o owners) At(i int) policy.Candidate {
	return o.t.entries[o.of.Position(i)].candidate(o.tried, o.priority, o.customer)
}

// anyTask are the candidates when there is no key.
type anyTask struct {
	t        *table
	tried    tried
	priority overload.Priority
	customer string
}

func (o anyTask) Len() int { return len(o.t.any) }
func (o anyTask) At(i int) policy.Candidate {
	return o.t.entries[o.t.any[i]].candidate(o.tried, o.priority, o.customer)
}

// Pick is balancer.Picker's. It takes no lock, save for RPCs that may be carried out
// twice, and does not allocate unless it fails.
func (t *table) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	r, ok := info.Ctx.Value(routeOfContext{}).(*route)
	if !ok {
		// Not through the interceptors: the picker is used as it is.
		p := t.priority(nil, overload.LabelsOf(info.Ctx))
		key, ok := clerk.KeyOf(info.Ctx)
		if !ok {
			return t.pickAny(nil, p)
		}
		return t.pickOwner(assignment.KeyOf(key), nil, p)
	}
	p := t.priority(r, r.labels)
	if !r.keyed {
		return t.pickAny(r, p)
	}
	return t.pickOwner(r.hash, r, p)
}

// priority is that of an RPC. Its cohort is drawn here if that matters now.
func (t *table) priority(r *route, l overload.Labels) overload.Priority {
	if drawn := t.job.clerk.DrawCohort(l); r != nil && drawn != l {
		l, r.labels, r.drawn = drawn, drawn, true
	}
	return t.job.clerk.Priority(l)
}

func (t *table) pickOwner(k assignment.SliceKey, r *route, p overload.Priority) (balancer.PickResult, error) {
	of := t.assignment.Lookup(k)
	i := 0
	if of.Len() > 1 {
		i = policy.Choose(t.kind, owners{t, of, r.tried(), p, r.customer()}, t.turns.next(k, t.kind, rand.Uint64))
	}
	e := &t.entries[of.Position(i)]
	if sub := e.conn.ready.Load(); sub != nil {
		t.job.clerk.Selected(true)
		return t.send(e, sub, r, p)
	}
	t.want(e)
	if policy.Condition(e.conn.condition.Load()) != policy.Failing || t.job.clerk.Mode() == assignment.Consistent {
		t.job.tally.waited.Add(1)
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	t.job.clerk.Selected(false)
	return t.pickElsewhere(k, r, p)
}

// pickElsewhere finds a task in the owner's place: the same for the same key,
// as long as nothing changes, so that what it caches is of use.
func (t *table) pickElsewhere(k assignment.SliceKey, r *route, p overload.Priority) (balancer.PickResult, error) {
	wait := false
	if n := len(t.any); n > 0 {
		for at, left := int(uint64(k)%uint64(n)), n; left > 0; at, left = (at+1)%n, left-1 {
			e := &t.entries[t.any[at]]
			if sub := e.conn.ready.Load(); sub != nil {
				t.job.tally.elsewhere.Add(1)
				return t.send(e, sub, r, p)
			}
			if !wait && policy.Condition(e.conn.condition.Load()) != policy.Failing {
				t.want(e)
				wait = true
			}
		}
	}
	// No task of the subset.
	for i := range t.entries {
		e := &t.entries[i]
		if sub := e.conn.ready.Load(); sub != nil {
			t.job.tally.elsewhere.Add(1)
			return t.send(e, sub, r, p)
		}
		if !wait && policy.Condition(e.conn.condition.Load()) != policy.Failing {
			t.want(e)
			wait = true
		}
	}
	if wait {
		t.job.tally.waited.Add(1)
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	return balancer.PickResult{}, t.unreachable()
}

func (t *table) pickAny(r *route, p overload.Priority) (balancer.PickResult, error) {
	t.job.tally.keyless.Add(1)
	if i := policy.Choose(t.kind, anyTask{t, r.tried(), p, r.customer()}, t.turns.next(0, t.kind, rand.Uint64)); i >= 0 {
		e := &t.entries[t.any[i]]
		if sub := e.conn.ready.Load(); sub != nil {
			return t.send(e, sub, r, p)
		}
		t.want(e)
		if policy.Condition(e.conn.condition.Load()) != policy.Failing {
			return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
		}
	}
	return t.pickElsewhere(0, r, p)
}

// send sends an RPC to a task, unless that would refuse it.
func (t *table) send(e *entry, sub *subConn, r *route, p overload.Priority) (balancer.PickResult, error) {
	c := e.conn
	customer := r.customer()
	standsFor, err := c.throttle.Send(p, customer)
	if err != nil {
		return balancer.PickResult{}, err
	}
	c.use()
	if t.few.Load() > 0 && t.few.Add(-1) == 0 {
		notify(t.wake)
	}
	var md metadata.MD
	if r == nil {
		t.job.clerk.Requested()
		md = t.generation.metadata
	} else {
		if r.job.Load() == nil {
			r.job.Store(t.job)
			t.job.clerk.Requested()
		}
		r.last.Store(c)
		if r.flight != nil {
			r.flight.At(e.flights)
		}
		said := r.sent
		if !r.stream {
			said = c.told.Load()
		}
		if said != t.generation {
			// It was not known, or another. Of two the server takes the last.
			md = t.generation.metadata
			if !r.stream {
				c.told.Store(t.generation)
			}
		}
	}
	if standsFor > 0 || r != nil && r.drawn {
		md = t.trial(md, standsFor, r)
	}
	if counts(t.kind) {
		c.outstanding.Add(1)
	}
	done := c.done
	if c.throttle.Watched() || c.throttle.Says() {
		done = func(info balancer.DoneInfo) {
			c.ended(info, p)
			if info.BytesReceived {
				c.throttle.Answered(p, customer, c.refused(info))
			}
		}
	}
	return balancer.PickResult{SubConn: sub.sc, Done: done, Metadata: md}, nil
}

// trial adds what goes with an RPC only while there are tasks without room.
func (t *table) trial(md metadata.MD, standsFor int, r *route) metadata.MD {
	md = md.Copy()
	if standsFor > 0 {
		md[StandsForHeader] = []string{strconv.Itoa(standsFor)}
	}
	if r != nil && r.drawn {
		cohort, _ := r.labels.Cohort()
		md[CohortHeader] = []string{strconv.Itoa(cohort)}
	}
	return md
}

// want makes keep connect.
func (t *table) want(e *entry) {
	if e.conn.want() {
		notify(t.wake)
	}
}

// unreachable is the error when there is no task to wait for. RPCs that wait for
// ready wait all the same.
func (t *table) unreachable() error {
	if len(t.entries) == 0 {
		return fmt.Errorf("job %q has no tasks", t.assignment.Job())
	}
	return fmt.Errorf("none of the %d tasks of job %q can be reached", len(t.entries), t.assignment.Job())
}
