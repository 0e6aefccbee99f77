package table

import (
	"container/heap"
	"time"
)

// timers is a heap of all sessions by when to look at each again: when it
// expires, or sooner, since a renewal leaves the heap alone.
type timers []*session

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].look < h[j].look }
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timers) Push(x any) {
	s := x.(*session)
	s.index = len(*h)
	*h = append(*h, s)
}

func (h *timers) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}

// Ended is a session that has expired.
type Ended struct {
	ID   uint64
	Held []string // the jobs in which it held something, sorted
}

// Expire ends the sessions whose time has run out by now. Until it does, a session
// whose time is up can do nothing more, and still holds what it holds.
func (t *Table) Expire(now time.Duration) (ended []Ended) {
	for len(t.due) > 0 && t.due[0].look <= now {
		s := t.due[0]
		if s.expires > now {
			s.look = s.expires
			heap.Fix(&t.due, 0)
			continue
		}
		ended = append(ended, Ended{s.id, t.Close(s.id)})
	}
	return ended
}

// Wake is when to call Expire next.
func (t *Table) Wake() (at time.Duration, ok bool) {
	if len(t.due) == 0 {
		return 0, false
	}
	return t.due[0].look, true
}
