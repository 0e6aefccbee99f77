// Package changes holds what a watcher has still to be told, so that a reader
// however slow costs one entry a job, or one view: never a queue.
//
//	var n changes.Jobs             // what changes calls n.Add(store.Change{...})
//	jobs, err := n.Next(ctx)       // the reader
//
// The zero values are ready. All methods are safe for concurrent use; one reader
// at a time is expected to call Next.
package changes

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/slicer-project/slicer/assignment/store"
)

// signal wakes one reader.
type signal struct {
	mu   sync.Mutex
	wake chan struct{} // closed and replaced when something changes
	err  error
}

// changedLocked wakes the reader.
func (s *signal) changedLocked() {
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
}

// waitLocked unlocks, waits for a change or ctx, and locks.
func (s *signal) waitLocked(ctx context.Context) error {
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	wake := s.wake
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end makes Next return err from now on. The first error counts.
func (s *signal) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		s.changedLocked()
	}
}

// Jobs are those that have changed since they were last named.
type Jobs struct {
	signal
	pending map[string]store.Change
	named   bool // Next has returned before
}

// Add notes that jobs have changed: the newest of each counts.
func (n *Jobs) Add(all ...store.Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pending == nil {
		n.pending = make(map[string]store.Change)
	}
	for _, c := range all {
		n.pending[c.Job] = c
	}
	if len(n.pending) > 0 {
		n.changedLocked()
	}
}

// Next waits for changes and returns them, in order of name. The first call returns at
// once, also when there are none.
func (n *Jobs) Next(ctx context.Context) (store.Changes, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if n.err != nil {
			return nil, n.err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(n.pending) > 0 || !n.named {
			all := slices.SortedFunc(maps.Values(n.pending), func(x, y store.Change) int { return cmp.Compare(x.Job, y.Job) })
			clear(n.pending)
			n.named = true
			return all, nil
		}
		if err := n.waitLocked(ctx); err != nil {
			return nil, err
		}
	}
}

// End makes Next return err.
func (n *Jobs) End(err error) { n.end(err) }

// Latest is the newest of a row of views.
type Latest[T any] struct {
	signal
	view  T
	fresh bool // not read yet
}

// Set takes the place of the view before, read or not.
func (l *Latest[T]) Set(view T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view, l.fresh = view, true
	l.changedLocked()
}

// Next waits for a view that it has not returned before.
func (l *Latest[T]) Next(ctx context.Context) (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var none T
	for {
		if l.err != nil {
			return none, l.err
		}
		if err := ctx.Err(); err != nil {
			return none, err
		}
		if l.fresh {
			l.fresh = false
			return l.view, nil
		}
		if err := l.waitLocked(ctx); err != nil {
			return none, err
		}
	}
}

// End makes Next return err.
func (l *Latest[T]) End(err error) { l.end(err) }
