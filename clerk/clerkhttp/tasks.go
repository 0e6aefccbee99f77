package clerkhttp

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/internal/flight"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// Within what bounds a task that was not reached is left alone.
const (
	firstBackoff = 100 * time.Millisecond
	longBackoff  = 5 * time.Second
)

// backend is a task, for as long as it has its name, its address and its
// incarnation.
type backend struct {
	name, address string
	incarnation   uint64
	pool          atomic.Pointer[pool]
	outstanding   atomic.Int64
	// failures in a row, and until when (Unix nanoseconds) the task is left alone
	// because of them.
	failures   atomic.Int32
	leaveAlone atomic.Int64
	// flights are requests under way that may be carried out twice, and what connects to the task.
	flights flight.Group
	// throttle is what the task has said that it refuses.
	throttle *clerk.Throttle
}

// over is for the end of a request that counts.
func (b *backend) over() {
	b.outstanding.Add(-1)
	b.throttle.Over()
}

// failed notes that the task was not reached.
func (b *backend) failed(now time.Time) {
	n := min(b.failures.Add(1), 10)
	d := min(firstBackoff<<(n-1), longBackoff)
	b.leaveAlone.Store(now.Add(backoff.About(d)).UnixNano())
}

// answered notes that it was.
func (b *backend) answered() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
}

// failing reports whether the task should rather be left alone now.
func (b *backend) failing(now time.Time) bool {
	return b.failures.Load() != 0 && now.UnixNano() < b.leaveAlone.Load()
}

// probe keeps other requests from a task that failed, while this request tries it.
func (b *backend) probe(now time.Time) {
	if b.failures.Load() != 0 {
		b.leaveAlone.Store(now.Add(dialTimeout).UnixNano())
	}
}

// snapshot is all that a request needs to know of the job. It is never changed.
type snapshot struct {
	subset     *clerk.Subset
	a          *assignment.Assignment
	generation []string   // as a header's value
	backends   []*backend // by position in the assignment
	all        []int      // positions of tasks that may be asked
	near       []int      // of those in the subset
}

// newSnapshot takes over what stays of the old one, which may be nil. gone gets the
// pools that do not, and left is the tasks that do not, or are said to be dead.
func newSnapshot(s *clerk.Subset, old *snapshot, throttle func(task string) *clerk.Throttle, open func(warm bool, flights *flight.Group) *pool, gone func(*pool, clerk.CloseCause)) (v *snapshot, left []*backend) {
	v = &snapshot{subset: s, a: s.Assignment()}
	v.generation = []string{strconv.FormatInt(int64(v.a.Generation()), 10)}
	v.backends = make([]*backend, v.a.NumTasks())
	before := map[string]*backend{}
	if old != nil {
		for _, b := range old.backends {
			before[b.name] = b
		}
	}
	for pos, t := range v.a.Tasks() {
		warm := s.Contains(pos)
		b := before[t.Name]
		if b != nil && b.address == t.Address && b.incarnation == t.Incarnation && t.State != assignment.TaskDead {
			delete(before, t.Name)
			if p := b.pool.Load(); p.warm != warm {
				b.pool.Store(open(warm, &b.flights))
				gone(p, clerk.CloseLeftSubset)
			}
		} else {
			b = &backend{name: t.Name, address: t.Address, incarnation: t.Incarnation, throttle: throttle(t.Name)}
			b.pool.Store(open(warm, &b.flights))
		}
		v.backends[pos] = b
		if t.State != assignment.TaskDead {
			v.all = append(v.all, pos)
			if warm {
				v.near = append(v.near, pos)
			}
		}
	}
	for _, b := range before {
		gone(b.pool.Load(), clerk.CloseTaskGone)
		left = append(left, b)
	}
	return v, left
}

// tried is the tasks that a request has been sent to.
type tried struct {
	n    int
	list [maxTries]*backend
}

func (t *tried) add(b *backend) {
	t.list[t.n%maxTries] = b
	t.n++
}

func (t *tried) has(b *backend) bool {
	for _, x := range t.list[:min(t.n, maxTries)] {
		if x == b {
			return true
		}
	}
	return false
}

// among is policy.Candidates: positions, or the owners of a slice.
type among struct {
	v         *snapshot
	owners    assignment.Replicas
	positions []int // if there are no owners
	tried     *tried
	priority  overload.Priority
	customer  string
	now       time.Time
}

func (a *among) Len() int {
	if n := a.owners.Len(); n > 0 {
		return n
	}
	return len(a.positions)
}

func (a *among) position(i int) int {
	if a.owners.Len() > 0 {
		return a.owners.Position(i)
	}
	return a.positions[i]
}

func (a *among) At(i int) policy.Candidate {
	pos := a.position(i)
	b := a.v.backends[pos]
	c := policy.Candidate{
		Outstanding: b.outstanding.Load(),
		Draining:    a.v.a.Task(pos).State == assignment.TaskDraining || b.throttle.Draining(),
		InSubset:    a.v.subset.Contains(pos),
		Full:        b.throttle.Holds(a.priority, a.customer),
		Failed:      b.throttle.Failed(),
		Tried:       a.tried.has(b),
	}
	// Whether there is a connection does not matter: one is made within a round
	// trip, and a task that never got a request would never get one.
	if b.failing(a.now) {
		c.Condition = policy.Failing
	}
	return c
}

// bad reports whether another task should rather be asked.
func bad(c policy.Candidate) bool { return c.Tried || c.Condition == policy.Failing }

// pick chooses the task for a request, nil if there is none left to try. Only
// owners will do when they are asked for alone.
func (v *snapshot) pick(kind policy.Kind, number func() uint64, owners assignment.Replicas, alone bool, t *tried, p overload.Priority, customer string, now time.Time) (b *backend, owner bool) {
	if owners.Len() == 1 && t.n == 0 { // which is usual
		if b := v.backends[owners.Position(0)]; alone || !b.failing(now) {
			return b, true
		}
	}
	choose := func(a among) (int, policy.Candidate, bool) {
		i := 0
		switch n := a.Len(); {
		case n == 0:
			return -1, policy.Candidate{}, false
		case n > 1:
			i = policy.Choose(kind, &a, number())
		}
		return a.position(i), a.At(i), true
	}
	pos, c, ok := choose(among{v: v, owners: owners, tried: t, priority: p, customer: customer, now: now})
	switch {
	case alone && !ok:
		return nil, false
	case alone || ok && !bad(c):
		return v.backends[pos], true
	}
	best, bestCandidate, owner := pos, c, ok
	for _, positions := range [][]int{v.near, v.all} {
		other, oc, found := choose(among{v: v, positions: positions, tried: t, priority: p, customer: customer, now: now})
		if !found {
			continue
		}
		if !ok || rank(oc) < rank(bestCandidate) {
			best, bestCandidate, ok, owner = other, oc, true, false
		}
		if !bad(bestCandidate) {
			break
		}
	}
	if !ok || bestCandidate.Tried {
		return nil, false
	}
	if !owner && owners.Len() > 0 {
		owner = owners.Has(best)
	}
	return v.backends[best], owner
}

// rank leaves the subset aside: an owner outside it is as good as any.
func rank(c policy.Candidate) int {
	switch {
	case c.Tried:
		return 2
	case c.Condition == policy.Failing:
		return 1
	}
	return 0
}
