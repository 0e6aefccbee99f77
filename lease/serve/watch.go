package serve

import (
	"context"
	"fmt"

	"github.com/slicer-project/slicer/lease"
)

// watcher looks again when the job has changed.
type watcher struct {
	s     *Store
	job   string
	last  lease.Seen
	begun bool
}

func (w *watcher) Next(ctx context.Context) (lease.Seen, error) {
	for {
		w.s.mu.Lock()
		seen := w.s.table.Seen(w.job)
		changed, leave := w.s.records.waitLocked(w.job)
		w.s.mu.Unlock()
		if w.begun && seen == w.last {
			if err := w.s.sleep(ctx, changed); err != nil {
				w.s.leave(leave)
				return lease.Seen{}, err
			}
		}
		w.s.leave(leave)
		if w.begun && seen == w.last {
			continue
		}
		w.last, w.begun = seen, true
		return seen, nil
	}
}

func (w *watcher) Close() error { return nil }

// sleep waits for a change.
func (s *Store) sleep(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done.Done():
		return fmt.Errorf("%w: closed", lease.ErrUnavailable)
	}
}

func (s *Store) leave(leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	leave()
}
