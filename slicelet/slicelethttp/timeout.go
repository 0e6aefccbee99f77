package slicelethttp

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// timeout is a context that ends at a time. There is a timer only once it is asked for Done: most
// handlers never ask, and to start and stop one costs more than all else here.
type timeout struct {
	context.Context
	by time.Time

	mu    sync.Mutex
	timed atomic.Pointer[timed] // nil before
	over  bool                  // under mu
}

// timed is the context with a timer.
type timed struct {
	context.Context
	cancel context.CancelFunc
}

// Deadline is context.Context's.
func (t *timeout) Deadline() (time.Time, bool) {
	if by, ok := t.Context.Deadline(); ok && by.Before(t.by) {
		return by, true
	}
	return t.by, true
}

// Done is context.Context's.
func (t *timeout) Done() <-chan struct{} { return t.start().Done() }

// Err is context.Context's.
func (t *timeout) Err() error {
	if c := t.timed.Load(); c != nil {
		return c.Err()
	}
	t.mu.Lock()
	goesOn := !t.over && t.Context.Err() == nil && time.Now().Before(t.by)
	t.mu.Unlock()
	if goesOn {
		return nil
	}
	return t.start().Err()
}

// Value is context.Context's. By it package context finds what to tell of the end.
func (t *timeout) Value(key any) any {
	if c := t.timed.Load(); c != nil {
		return c.Value(key)
	}
	return t.Context.Value(key)
}

// start makes the timer.
func (t *timeout) start() *timed {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.timed.Load()
	if c == nil {
		c = new(timed)
		if t.over {
			c.Context, c.cancel = context.WithCancel(t.Context)
			c.cancel()
		} else {
			c.Context, c.cancel = context.WithDeadline(t.Context, t.by)
		}
		t.timed.Store(c)
	}
	return c
}

// end ends the context, if it has not ended before.
func (t *timeout) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if c := t.timed.Load(); c != nil {
		c.cancel()
	}
}
