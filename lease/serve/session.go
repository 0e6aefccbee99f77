package serve

import (
	"context"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/lease"
)

// OpenReader implements lease.Readers.
func (s *Store) OpenReader(ctx context.Context, ttl time.Duration) (lease.ReadSession, error) {
	return s.open(ctx, ttl)
}

// OpenWriter implements lease.Writers.
func (s *Store) OpenWriter(ctx context.Context, ttl time.Duration) (lease.WriteSession, error) {
	return s.open(ctx, ttl)
}

func (s *Store) open(ctx context.Context, ttl time.Duration) (*session, error) {
	if err := lease.CheckTTL(ttl); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return nil, err
	}
	if ttl > s.longest {
		if err := s.put(ctx, map[string][]byte{keyLongest: number(uint64(ttl))}); err != nil {
			return nil, err
		}
		s.longest = ttl
	}
	id, err := s.table.Open(s.clock(), ttl)
	if err != nil {
		return nil, err
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return &session{s, id, ttl}, nil
}

// session is a lease in the table. Only its id counts: a session of the same id
// is the same.
type session struct {
	s   *Store
	id  uint64
	ttl time.Duration
}

func (n *session) ID() uint64         { return n.id }
func (n *session) TTL() time.Duration { return n.ttl }

func (n *session) KeepAlive(ctx context.Context) error {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return s.table.KeepAlive(s.clock(), n.id)
}

func (n *session) Close(ctx context.Context) error {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, job := range s.table.Close(n.id) {
		s.touched.ring(job)
	}
	return nil
}

func (n *session) Acquire(ctx context.Context, job string, c lease.Claim) (lease.Seen, bool, error) {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.running(); err != nil {
		return s.table.Seen(job), false, err
	}
	seen, ok, err := s.table.Acquire(s.clock(), n.id, job, c)
	if ok {
		s.touched.ring(job)
	}
	return seen, ok, err
}

func (n *session) Release(ctx context.Context, job string, c lease.Claim) error {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	changed, err := s.table.Release(s.clock(), n.id, job, c)
	if changed {
		s.touched.ring(job)
	}
	return err
}

func (n *session) Watch(ctx context.Context, job string) (lease.Watcher, error) {
	return &watcher{s: n.s, job: job}, ctx.Err()
}

// watcher looks again when the job's bell rings.
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
		rung, leave := w.s.records.wait(w.job)
		w.s.mu.Unlock()
		if w.begun && seen == w.last {
			if err := w.s.sleep(ctx, rung); err != nil {
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

// sleep waits for a bell.
func (s *Store) sleep(ctx context.Context, rung <-chan struct{}) error {
	select {
	case <-rung:
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
