package clerkgrpc

import (
	"fmt"
	"math"
	"math/rand/v2"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/internal/flight"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// table is a picker: an assignment, and the connections to its tasks. Only the
// connections change.
type table struct {
	job        *job
	kind       policy.Kind
	turns      *turns
	wake       chan struct{}
	assignment *assignment.Assignment
	entries    []entry // by position in the assignment
	// any holds the positions of the running tasks of the subset: for RPCs without
	// a key, and for those whose owners cannot be reached.
	any        []uint32
	generation *generation
}

type entry struct {
	conn                     *conn
	flights                  *flight.Group // of the incarnation that the assignment names
	draining, inSubset, warm bool
}

func (e *entry) candidate(t tried) policy.Candidate {
	return policy.Candidate{
		Condition: policy.Condition(e.conn.condition.Load()), Draining: e.draining, InSubset: e.inSubset,
		Outstanding: e.conn.outstanding.Load(), Weight: math.Float64frombits(e.conn.weight.Load()), Tried: t.has(e.conn),
	}
}

// owners are the candidates for a key.
type owners struct {
	t     *table
	of    assignment.Replicas
	tried tried
}

func (o owners) Len() int                  { return o.of.Len() }
func (o owners) At(i int) policy.Candidate { return o.t.entries[o.of.Position(i)].candidate(o.tried) }

// anyTask are the candidates when there is no key.
type anyTask struct {
	t     *table
	tried tried
}

func (o anyTask) Len() int                  { return len(o.t.any) }
func (o anyTask) At(i int) policy.Candidate { return o.t.entries[o.t.any[i]].candidate(o.tried) }

// Pick is balancer.Picker's. It takes no lock, save for RPCs that may be carried out
// twice, and does not allocate unless it fails.
func (t *table) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	r, ok := info.Ctx.Value(routeOfContext{}).(*route)
	if !ok {
		// Not through the interceptors: the picker is used as it is.
		key, ok := clerk.KeyOf(info.Ctx)
		if !ok {
			return t.pickAny(nil)
		}
		return t.pickOwner(assignment.KeyOf(key), nil)
	}
	if !r.keyed {
		return t.pickAny(r)
	}
	return t.pickOwner(r.hash, r)
}

func (t *table) pickOwner(k assignment.SliceKey, r *route) (balancer.PickResult, error) {
	of := t.assignment.Lookup(k)
	i := 0
	if of.Len() > 1 {
		i = policy.Choose(t.kind, owners{t, of, r.tried()}, t.turns.next(k, t.kind, rand.Uint64))
	}
	e := &t.entries[of.Position(i)]
	if sub := e.conn.ready.Load(); sub != nil {
		t.job.clerk.Selected(true)
		return t.send(e, sub, r), nil
	}
	t.want(e)
	if policy.Condition(e.conn.condition.Load()) != policy.Failing || t.job.clerk.Mode() == assignment.Consistent {
		t.job.tally.waited.Add(1)
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	t.job.clerk.Selected(false)
	return t.pickElsewhere(k, r)
}

// pickElsewhere finds a task in the owner's place: the same for the same key,
// as long as nothing changes, so that what it caches is of use.
func (t *table) pickElsewhere(k assignment.SliceKey, r *route) (balancer.PickResult, error) {
	wait := false
	if n := len(t.any); n > 0 {
		for at, left := int(uint64(k)%uint64(n)), n; left > 0; at, left = (at+1)%n, left-1 {
			e := &t.entries[t.any[at]]
			if sub := e.conn.ready.Load(); sub != nil {
				t.job.tally.elsewhere.Add(1)
				return t.send(e, sub, r), nil
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
			return t.send(e, sub, r), nil
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

func (t *table) pickAny(r *route) (balancer.PickResult, error) {
	t.job.tally.keyless.Add(1)
	if i := policy.Choose(t.kind, anyTask{t, r.tried()}, t.turns.next(0, t.kind, rand.Uint64)); i >= 0 {
		e := &t.entries[t.any[i]]
		if sub := e.conn.ready.Load(); sub != nil {
			return t.send(e, sub, r), nil
		}
		t.want(e)
		if policy.Condition(e.conn.condition.Load()) != policy.Failing {
			return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
		}
	}
	return t.pickElsewhere(0, r)
}

func (t *table) send(e *entry, sub *subConn, r *route) balancer.PickResult {
	c := e.conn
	if !e.warm && !c.used.Load() {
		c.used.Store(true)
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
		if r.sent != t.generation {
			// It was not known, or another. Of two the server takes the last.
			md = t.generation.metadata
		}
	}
	if t.kind == policy.LeastLoaded {
		c.outstanding.Add(1)
	}
	return balancer.PickResult{SubConn: sub.sc, Done: c.done, Metadata: md}
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
