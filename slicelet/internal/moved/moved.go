// Package moved is what the adapters have in common about long requests: a signal that the
// request's key has moved, and what ends the request some time later.
package moved

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/slicelet"
)

const (
	// Grace is how long after the signal a request is ended where the config does not say.
	Grace = 250 * time.Millisecond
	// Behind is after how long the key of a request counts as moved that its client has sent here
	// since it was behind: by then it knows the owner, unless it is cut off from the control plane.
	Behind = 500 * time.Millisecond
)

// ErrMoved is the cause with which the context of a request ends.
var ErrMoved = errors.New("slicer: the request's key has moved to another task")

// Route says how the generation that a request was routed by, which its client says, stands to the one
// here: "older", "newer" or "same", and "unknown" if there is none on either side.
func Route(generation int64, a *assignment.Assignment) string {
	if generation <= 0 || a == nil {
		return "unknown"
	}
	switch here := int64(a.Generation()); {
	case generation < here:
		return "older"
	case generation > here:
		return "newer"
	}
	return "same"
}

// Signal is a request's. The zero value is ready for use. Most requests do not ask for it: it is made
// when one does.
type Signal struct{ of atomic.Pointer[signal] }

type signal struct {
	mu     sync.Mutex
	c      chan struct{} // nil before it is asked for
	fired  bool
	ended  bool
	stop   func() bool
	timers []*time.Timer
	grace  time.Duration
	end    func()
}

// unasked is the one of requests that have ended without it.
var unasked = &signal{ended: true}

func (s *Signal) get() *signal {
	if s.of.Load() == nil {
		s.of.CompareAndSwap(nil, new(signal))
	}
	return s.of.Load()
}

// C returns a channel that is closed when the key of the request has moved, and never after Stop.
func (s *Signal) C(h slicelet.Handle) <-chan struct{} { return s.get().channel(h) }

func (s *signal) channel(h slicelet.Handle) <-chan struct{} {
	s.mu.Lock()
	if s.c != nil || s.ended {
		defer s.mu.Unlock()
		return s.c
	}
	c := make(chan struct{})
	s.c = c
	s.mu.Unlock()
	stop := h.OnMove(s.fire)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop = stop; s.ended {
		stop()
	}
	return c
}

// EndAfter calls end, once and not after Stop, when the key has moved and the grace is over. It is
// called with a lock held, so that Stop waits for it, and must not block for long. behind: the request was
// sent here by a client that is behind.
func (s *Signal) EndAfter(h slicelet.Handle, grace time.Duration, behind bool, end func()) {
	s.get().endAfter(h, grace, behind, end)
}

func (s *signal) endAfter(h slicelet.Handle, grace time.Duration, behind bool, end func()) {
	s.mu.Lock()
	if s.grace, s.end = grace, end; grace <= 0 {
		s.grace = Grace
	}
	s.mu.Unlock()
	s.channel(h)
	if behind {
		s.mu.Lock()
		s.timers = append(s.timers, time.AfterFunc(Behind, s.fire))
		s.mu.Unlock()
	}
}

// fire says that the key has moved.
func (s *signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fired || s.ended {
		return
	}
	s.fired = true
	close(s.c)
	if s.end != nil {
		s.timers = append(s.timers, time.AfterFunc(s.grace, s.over))
	}
}

func (s *signal) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.end()
	}
}

// Stop ends all of it.
func (s *Signal) Stop() {
	if !s.of.CompareAndSwap(nil, unasked) {
		s.of.Load().halt()
	}
}

func (s *signal) halt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.stop != nil {
		s.stop()
	}
	for _, t := range s.timers {
		t.Stop()
	}
}
