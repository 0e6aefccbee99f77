package slicelet

import (
	"sync"

	"github.com/slicer-project/slicer/assignment"
)

// OnMove calls f once the key is another task's: for a handle that was owned, when
// AssignedContinuously has become false, and for one that was not, when an assignment has arrived
// since then that takes the key from the task that owned it and does not give it to this one; which
// the part of a large assignment does not tell (Config.WholeAssignment). It is
// for what lasts long, such as a stream. f is called in another goroutine, or before OnMove returns,
// and must not block: the next one waits for it. It is called at the latest when the slicelet
// closes. stop lets go of it, and reports whether it has not been called and will not be.
func (h Handle) OnMove(f func()) (stop func() bool) {
	if h.s == nil {
		f()
		return func() bool { return false }
	}
	return h.s.listeners.moves.add(h, f)
}

// moves are the handles that wait for their keys to move.
type moves struct {
	wake chan struct{} // of capacity 1: the view has changed

	mu      sync.Mutex
	waiting map[*move]struct{}
	begun   bool // there is a goroutine
	over    bool // the slicelet closes
}

// move waits for one key.
type move struct {
	h     Handle
	f     func()
	owner assignment.Task // before, if h was not owned
}

func (ms *moves) add(h Handle, f func()) (stop func() bool) {
	m := &move{h: h, f: f}
	if v := h.s.view.Load(); v.a != nil {
		if r := v.a.Lookup(h.key); r.Len() > 0 {
			m.owner = r.At(0)
		}
	}
	ms.begin(h.s, m)
	if ms.take(m, m.movedLocked) { // what changes from here on, the goroutine sees
		f()
	}
	return func() bool { return ms.take(m, func() bool { return true }) }
}

// begin makes a move wait. The goroutine that looks at all of them is started with the first.
func (ms *moves) begin(s *Slicelet, m *move) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.waiting[m] = struct{}{}
	if s.closing {
		ms.over = true
	} else if !ms.begun {
		ms.begun = true
		s.wg.Go(func() { ms.watch(s.stop) })
	}
}

// take takes one out if it is there and to be taken, and reports whether it did.
func (ms *moves) take(m *move, now func() bool) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if _, ok := ms.waiting[m]; !ok || !ms.over && !now() {
		return false
	}
	delete(ms.waiting, m)
	return true
}

// watch calls those whose keys have moved, until the slicelet closes, and then all.
func (ms *moves) watch(stop <-chan struct{}) {
	for over := false; !over; {
		select {
		case <-ms.wake:
		case <-stop:
			over = true
		}
		for _, m := range ms.ready(over) {
			m.f()
		}
	}
}

func (ms *moves) ready(all bool) (ready []*move) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.over = ms.over || all
	for m := range ms.waiting {
		if ms.over || m.movedLocked() {
			ready = append(ready, m)
			delete(ms.waiting, m)
		}
	}
	return ready
}

// movedLocked reports whether the key is another task's by now. moves.mu is held, as a key that was
// not owned may have come.
func (m *move) movedLocked() bool {
	if m.h.owned {
		return !m.h.AssignedContinuously()
	}
	v, i, owned := m.h.s.find(m.h.key)
	if owned {
		m.h = Handle{s: m.h.s, key: m.h.key, epoch: v.epoch, owned: true, token: v.tokenOf(i, m.h.key)}
		return false
	}
	if v.a == nil {
		return false
	}
	r := v.a.Lookup(m.h.key)
	if r.Len() == 0 {
		return false // a part does not say whose it is
	}
	for t := range r.All() {
		if t.Same(m.owner) || t.Same(m.h.s.me) {
			return false
		}
	}
	return true
}
