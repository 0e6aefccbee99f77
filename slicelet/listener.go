package slicelet

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Listener is told which keys the task comes to own and which it loses, to fetch
// their state and to drop it (Slicer paper, section 2.2).
type Listener interface {
	// SlicesChanged is called after ownership has changed. Splits and merges of
	// slices that stay change nothing.
	//
	// Calls are serial, from one goroutine. They may block: that holds up neither
	// assignments nor requests, and what changes meanwhile comes merged in the next
	// call. Ownership may therefore be ahead of what the listener knows, and a call
	// must not wait for what only a later one can tell. It must not call Drain or
	// Close, which wait for it. It must return when ctx ends, which is ListenerGrace
	// after Close has been called.
	//
	// In consistent mode a lost lease is told at the local deadline,
	// lease.Config.Margin before another task can own the keys: a call that takes
	// longer learns it late. Handles know at once.
	SlicesChanged(ctx context.Context, c Change)
}

// Change is how ownership differs from what a listener was told before. Ranges
// are in key order, and those of one list apart.
type Change struct {
	// Generation is that of the assignment by which the task owns what it does now, 0
	// if there is none: the newest in affinity mode, that of the guard, or of the target
	// of the bridge, in consistent mode.
	Generation assignment.Generation
	// Arrived and Departed are the keys that the task has come to own and those that
	// it has lost. Keys that were lost and have come back since the last call, so that
	// another task may have owned them meanwhile, are in both: drop what is known of
	// them, then fetch it anew.
	Arrived, Departed []Range
}

// Range is keys that have arrived or departed, and the other tasks that owned and own
// them. A task is as it was in the assignment in question, where it may have a former
// incarnation and address; this task, by name, is left out.
type Range struct {
	assignment.Slice
	// From are the other tasks that owned arrived keys in the assignment that this
	// incarnation held last before it came to own them, or departed keys while it owned
	// them, which are replicas then. It is empty where there are none, and where none are
	// known: the first assignment that a slicelet gets follows nothing that it held. As
	// a slicelet may skip generations, another task may have owned arrived keys in
	// between, and departed ones may have moved on.
	From []assignment.Task
	// To are the other tasks that own the keys now, as far as is known here.
	To []assignment.Task
}

// ListenerGrace is how long after a call of Close the listener's context ends.
const ListenerGrace = 10 * time.Second

// Listen calls l from now on, in a goroutine that Close ends: first with all that
// the task owns already, if it owns anything, then after each change. Several
// listeners are told apart from each other. After Close it does nothing.
func (s *Slicelet) Listen(l Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	t := &teller{listener: l, wake: make(chan struct{}, 1)}
	t.told.Store(emptyView())
	notify(t.wake)
	s.listeners.tellers = append(s.listeners.tellers, t)
	s.wg.Go(func() { s.tell(t) })
}

// listeners are those of a slicelet.
type listeners struct {
	tellers []*teller // guarded by Slicelet.mu
	// last is what they are told when the slicelet closes, nil before.
	last atomic.Pointer[view]
	ctx  context.Context // of their calls, until end
	end  context.CancelFunc

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when one of them has returned

	moves moves
}

// returned tells those that wait that a listener knows something new.
func (l *listeners) returned() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *listeners) next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// wake lets all of them look at the view.
func (l *listeners) wake() {
	for _, t := range l.tellers {
		notify(t.wake)
	}
	notify(l.moves.wake)
}

// allLocked reports whether what every listener knows, nil while it is being called, is good.
// Slicelet.mu is held.
func (l *listeners) allLocked(good func(told *view) bool) bool {
	for _, t := range l.tellers {
		if !good(t.told.Load()) {
			return false
		}
	}
	return true
}

// teller is what calls one listener.
type teller struct {
	listener Listener
	wake     chan struct{} // of capacity 1: the view has changed
	// told is the view that the listener knows, nil while it is being called.
	told atomic.Pointer[view]
}

// tell calls a listener until the slicelet closes. What departed before that is
// told all the same; what has arrived is not, since it departs with the slicelet.
func (s *Slicelet) tell(t *teller) {
	before := t.told.Load()
	for {
		select {
		case <-t.wake:
		case <-s.stop:
		}
		t.told.Store(nil)
		v := s.listeners.last.Load()
		closing := v != nil
		if !closing {
			v = s.view.Load()
		}
		c := v.changed(before, s.me.Name)
		if closing {
			c.Arrived = nil
		}
		if len(c.Arrived)+len(c.Departed) > 0 {
			t.listener.SlicesChanged(s.listeners.ctx, c)
		}
		before = v
		t.told.Store(v)
		s.listeners.returned()
		if closing {
			return
		}
	}
}

// AwaitListeners waits until every listener has been told what the task owns now and has
// returned, as a test does before it looks at what they have done. Otherwise the error matches
// ctx's, or ErrClosed.
func (s *Slicelet) AwaitListeners(ctx context.Context) error {
	for {
		changed := s.listeners.next()
		v := s.view.Load()
		s.mu.Lock()
		know := s.listeners.allLocked(func(told *view) bool { return told == v })
		s.mu.Unlock()
		if know {
			return nil
		}
		var why error
		select {
		case <-changed:
			continue
		case <-ctx.Done():
			why = context.Cause(ctx)
		case <-s.stop:
			why = ErrClosed
		}
		return fmt.Errorf("task %q: waiting for a listener to return: %w", s.me.Name, why)
	}
}

// told reports whether every listener knows that the task owns nothing, which it
// must be known to do.
func (s *Slicelet) told() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listeners.allLocked(func(v *view) bool { return v != nil && len(v.runs) == 0 })
}

// since returns what has changed from an earlier view to v.
func (v *view) since(before *view) (arrived, departed []assignment.Slice) {
	if v.epoch != before.epoch {
		arrived, _ = changes(nil, v.runs)
		_, departed = changes(before.runs, nil)
		return arrived, departed
	}
	return changes(before.runs, v.runs)
}
