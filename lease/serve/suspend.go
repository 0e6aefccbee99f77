package serve

import (
	"context"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/lease"
)

// Suspend implements lease.Suspender. A store that is opened again meanwhile grants
// nothing for d from then on.
func (s *Store) Suspend(ctx context.Context, d time.Duration) error {
	if err := lease.CheckTTL(d); err != nil {
		return fmt.Errorf("suspend leases: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	longest := max(d, s.promises.of[suspension][allJobs])
	if err := s.keepLocked(s.promises.missing(map[string]time.Duration{allJobs: longest})); err != nil {
		return err
	}
	s.promises.make(suspension, allJobs, longest)
	s.rouse()
	s.suspended = max(s.suspended, s.clock()+d)
	return nil
}

// runningLocked reports whether records may change and be granted. The lock is held.
func (s *Store) runningLocked() error {
	switch {
	case s.err != nil:
		return s.err
	case s.clock() < s.suspended:
		return lease.ErrSuspended
	}
	return nil
}
