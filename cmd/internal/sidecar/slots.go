package sidecar

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// mostWaiting is how many requests wait for a slot at most. A server that is asked for .8 of what
// it can do, by requests that come and take as long as by chance (M/M/1), finds as many before one
// of a thousand.
const mostWaiting = 32

// slots bound how many requests are at the server at once. Where all slots are taken requests wait,
// the highest priority first and of one priority in the order in which they came; what does not
// wait is refused. All methods are safe for concurrent use; nil bounds nothing.
type slots struct {
	most int

	mu      sync.Mutex
	taken   int
	waiting []*waiter // in order
}

type waiter struct {
	priority overload.Priority
	got      chan bool // of capacity 1: whether it has a slot, or is refused for one that came later
}

func newSlots(most int) *slots {
	if most <= 0 {
		return nil
	}
	return &slots{most: most}
}

// take reports whether the request of ctx has a slot, which has to be released, and whether it has
// waited. It waits until ctx ends, or for as long as a request waits at most at a task
// (overload.MayWait).
func (s *slots) take(ctx context.Context) (ok, waited bool) {
	if s == nil {
		return true, false
	}
	w, ok := s.enter(overload.LabelsOf(ctx).Priority())
	if w == nil {
		return ok, false
	}
	left := time.Duration(0)
	if by, ok := ctx.Deadline(); ok {
		left = max(time.Until(by), 1)
	}
	timer := time.NewTimer(overload.MayWait(left))
	defer timer.Stop()
	select {
	case ok = <-w.got:
	case <-ctx.Done():
		ok = s.leave(w)
	case <-timer.C:
		ok = s.leave(w)
	}
	return ok, true
}

// enter takes a slot, or waits for one, or does neither.
func (s *slots) enter(p overload.Priority) (w *waiter, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken < s.most {
		s.taken++
		return nil, true
	}
	if n := len(s.waiting); n == mostWaiting {
		last := s.waiting[n-1]
		if last.priority >= p {
			return nil, false
		}
		s.waiting = s.waiting[:n-1]
		last.got <- false
	}
	w = &waiter{priority: p, got: make(chan bool, 1)}
	at := len(s.waiting)
	for at > 0 && s.waiting[at-1].priority < p {
		at--
	}
	s.waiting = slices.Insert(s.waiting, at, w)
	return w, false
}

// leave ends the waiting of w, and reports whether it has got a slot meanwhile.
func (s *slots) leave(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, w); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return false
	}
	return <-w.got
}

// release gives a slot back, or on.
func (s *slots) release() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.taken--
		return
	}
	first := s.waiting[0]
	s.waiting = slices.Delete(s.waiting, 0, 1)
	first.got <- true
}
