package slicelet

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet/internal/admission"
	"github.com/slicer-project/slicer/slicelet/quota"
)

// arrivals is what is known of requests as such, with or without a key.
type arrivals struct {
	attempts attempts
	customer func(ctx context.Context, claimed string) string // Config.Customer
	patience time.Duration                                    // Config.Patience
	control  *admission.Controller
	accounts *quota.Accounts
	peers    peers
}

// attempts counts requests by how often they were sent before.
type attempts struct {
	began time.Time        // which times count from
	by    [3]atomic.Uint64 // 0, 1, and more
	// believed are those of the latter two that are not more than a client may say.
	believed atomic.Uint64
	due      atomic.Int64 // when the next sample is, nanoseconds since began

	mu     sync.Mutex
	recent overload.Attempts
}

// count counts one that was sent so often before, which is believed or not.
func (a *attempts) count(now time.Time, before int, believed bool) {
	since := now.Sub(a.began)
	if due := a.due.Load(); int64(since) >= due && a.due.CompareAndSwap(due, int64(since+overload.SampleEvery)) {
		a.mu.Lock()
		a.recent.Sample(since, a.first(), a.again())
		a.mu.Unlock()
	}
	if a.by[before].Add(1); before > 0 && believed {
		a.believed.Add(1)
	}
}

func (a *attempts) again() uint64 { return a.believed.Load() }
func (a *attempts) first() uint64 {
	again := a.again() // the others only grow meanwhile
	return a.by[0].Load() + a.by[1].Load() + a.by[2].Load() - again
}

// many reports whether many were sent before.
func (a *attempts) many(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.recent.Many(now.Sub(a.began), a.first(), a.again())
}

// CountAttempt counts a request that has arrived, by how often its client has sent it
// before: 0 is a first attempt, and so is what is below. peer tells apart what requests come
// from (Arrival.Peer): of each a tenth of the requests count as retries at most, which is what
// a client sends that keeps its budget, or one that says so of all would forbid the others
// theirs (Elsewhere). The handlers of packages sliceletgrpc and slicelethttp call it. It does
// not allocate, and takes a lock four times a second.
func (s *Slicelet) CountAttempt(now time.Time, peer uint64, before int) {
	a := &s.arrivals
	before = min(max(before, 0), len(a.attempts.by)-1)
	a.attempts.count(now, before, a.peers.attempt(peer, before > 0))
}

// Elsewhere reports whether a request without a key, for which this task has no room, may
// be sent to another task: not if there is none, nor if many of the requests that arrive
// here have been sent before, since then others have no room either (see
// overload.Attempts).
func (s *Slicelet) Elsewhere() bool {
	a := s.Assignment()
	if a == nil {
		return false
	}
	others := a.NumTasks()
	if _, named := a.Position(s.me.Name); named {
		others--
	}
	return others > 0 && !s.arrivals.attempts.many(time.Now())
}

// Elsewhere is Slicelet.Elsewhere for a request with this key: besides, another task must
// own the key, too, which is never so in consistent mode, and not known of a key that is not the
// task's where the slicelet holds a part (Slicelet.Assignment).
func (h Handle) Elsewhere() bool {
	if h.s == nil || h.s.Mode() != assignment.Affinity || !h.s.Elsewhere() {
		return false
	}
	return h.s.Assignment().Lookup(h.key).Len() > 1
}

// Shed counts a request for which this task has no room, by its handle if it has a key, and
// reports whether it may be sent to another task (Elsewhere). Without a key h is the zero
// value. It is load as Handle.Shed says only if it is Critical or above: a flood of what may
// fail moves no keys.
func (s *Slicelet) Shed(h Handle, l overload.Labels) (elsewhere bool) {
	if h.s == nil {
		return s.Elsewhere()
	}
	h.shed(isDemand(l))
	h.s.recorder.refused(time.Now())
	return h.Elsewhere()
}

func isDemand(l overload.Labels) bool { return l.Priority().Criticality() >= overload.Critical }

// signals are a task's own and its user's.
func (c *Config) signals() []func() float64 {
	all := slices.Clone(c.Signals)
	if memory := admission.Memory(); memory != nil {
		all = append(all, memory)
	}
	return all
}
