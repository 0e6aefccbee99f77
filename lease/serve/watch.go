package serve

import (
	"context"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/internal/rpc"
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

func (s *Store) tell(w *watch, seen lease.Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.told = seen
}

// told is what an answer to a session's renewal tells of its watches: the sum of the
// revisions of all that they have told last, if that is so still, else 0. They count as
// repeated then.
func (s *Store) told(id uint64) (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.remote.byID[id]
	if x == nil {
		return 0
	}
	for job, w := range x.watches {
		if w.told != s.table.Seen(job) {
			return 0
		}
		sum += w.told.Revision
	}
	if sum != 0 {
		x.repeated = time.Now()
	}
	return sum
}

// repeated is for how much longer a session's watches need not repeat what they have told.
func (s *Store) repeated(x *remoteSession) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return rpc.Stands - time.Since(x.repeated)
}
