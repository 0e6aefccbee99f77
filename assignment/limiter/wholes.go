package limiter

import (
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment/limiter/fair"
)

// A Distributor that has just started, or whose store was wiped, has to send whole
// assignments to all. At once they would fill its memory and its network, and a change
// that comes meanwhile would wait behind them. So few are sent at a time: to slicelets
// first, since they serve, and of different clients in turn. A quarter is kept for clients
// that are sent none: one with many slicelets, which need not acknowledge anything, would
// hold up all clerks.
const (
	// DefaultWholeBytes is how much of whole assignments is on its way at once, as far
	// as it is not acknowledged; DefaultWholes are on their way whatever their size.
	DefaultWholeBytes = 64 << 20
	DefaultWholes     = 16
	// WholeFor is how long one counts at most: a subscriber that is slow to acknowledge
	// is not to hold up those behind it.
	WholeFor = 2 * time.Second
	// keptWholes is the part, one in so many.
	keptWholes = 4
)

// Subject is what an assignment is of. It is notified when Granted has news for it, from
// within other calls: it must not call back.
type Subject interface {
	comparable
	Notify()
}

// Wholes limit the whole assignments that are on their way. All methods are safe for
// concurrent use.
type Wholes[S Subject] struct {
	mu       sync.Mutex // taken after any other
	fair     *fair.Limiter
	subjects map[uint64]S // of those that wait
	ready    map[S][]uint64
}

// NewWholes makes one that allows count at once, and more as long as they are of at
// most so many bytes together.
func NewWholes[S Subject](count, bytes int) *Wholes[S] {
	return &Wholes[S]{
		fair:     fair.New(fair.Config{Least: count, Cost: bytes, Hold: WholeFor, Classes: 2, Kept: keptWholes}),
		subjects: make(map[uint64]S), ready: make(map[S][]uint64),
	}
}

// Acquire reports whether a subscriber of the client key may be sent so many bytes now.
// If not it waits, those of class 0 before those of class 1, and its subject is notified
// when it may.
func (w *Wholes[S]) Acquire(now time.Time, id uint64, key string, class int, of S, bytes int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	waited := w.fair.Waits(id)
	if w.fair.Acquire(now, id, key, class, bytes) {
		delete(w.subjects, id)
		w.settleLocked()
		return true
	}
	w.subjects[id] = of
	w.settleLocked()
	if !waited {
		of.Notify() // it is to look when this may come
	}
	return false
}

// Release says that a subscriber has what it was sent, or does not need it any more.
func (w *Wholes[S]) Release(now time.Time, id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.subjects, id)
	w.fair.Release(now, id)
	w.settleLocked()
}

// Granted are those of a subject that may be sent the whole since the last call.
func (w *Wholes[S]) Granted(now time.Time, of S) []uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fair.Expire(now)
	w.settleLocked()
	if len(w.ready) == 0 {
		return nil
	}
	ids := w.ready[of]
	delete(w.ready, of)
	return ids
}

// Look returns how many wait, and when one more may be sent at the latest, zero if none
// waits.
func (w *Wholes[S]) Look() (waiting int, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if waiting = w.fair.Waiting(); waiting > 0 {
		next = w.fair.Next()
	}
	return waiting, next
}

// Waits reports whether a subscriber waits.
func (w *Wholes[S]) Waits(id uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fair.Waits(id)
}

// Forget releases what a subject has not asked for.
func (w *Wholes[S]) Forget(now time.Time, of S) {
	for _, id := range w.Granted(now, of) {
		w.Release(now, id)
	}
}

func (w *Wholes[S]) settleLocked() {
	for _, id := range w.fair.Granted() {
		of, ok := w.subjects[id]
		if !ok {
			continue
		}
		delete(w.subjects, id)
		w.ready[of] = append(w.ready[of], id)
		of.Notify()
	}
}
