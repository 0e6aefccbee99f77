package handlers

import (
	"sync"
	"time"
)

// Signals are how the goroutines of one stream tell the one that runs it what has happened. All
// methods are safe for concurrent use.
type Signals struct {
	wake   chan struct{} // holds a token when the stream is to be looked at again
	finish sync.Once
	done   chan struct{} // closed when the stream is to end
	err    error         // why, to be read after done
}

// NewSignals are those of a stream.
func NewSignals() *Signals {
	return &Signals{wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// End ends the stream with err, the first that is given.
func (s *Signals) End(err error) {
	s.finish.Do(func() {
		s.err = err
		close(s.done)
	})
}

// Ended is closed by End, and Err is then what it was given.
func (s *Signals) Ended() <-chan struct{} { return s.done }

// Err is why the stream is to end, once Ended is closed.
func (s *Signals) Err() error { return s.err }

// Notify has the stream looked at again.
func (s *Signals) Notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Notified receives once for any number of calls of Notify.
func (s *Signals) Notified() <-chan struct{} { return s.wake }

// Sooner is the earlier of two times, the zero time being never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
