package serve

import (
	"context"
	"errors"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
)

// Lead implements lease.WriteSession.
func (n *session) Lead(ctx context.Context, job string) (lease.Token, error) {
	if err := assignment.ValidateJobName(job); err != nil {
		return 0, err
	}
	s := n.s
	limit, err := s.limit(ctx, job, nil)
	if err != nil && !errors.Is(err, errUnknownJob) { // a job that is gone may be wound up
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.err, s.grantedLocked(job, limit)); err != nil {
		return 0, err
	}
	t, err := s.table.Lead(s.clock(), n.id, job)
	if err == nil {
		s.touched.notify(job)
	}
	return t, err
}

// Resign implements lease.WriteSession.
func (n *session) Resign(ctx context.Context, job string, t lease.Token) error {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table.Resign(job, t) {
		s.touched.notify(job)
	}
	return s.err
}

// State implements lease.WriteSession.
func (n *session) State(ctx context.Context, job string) (lease.State, error) {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	return n.s.table.State(job), n.s.err
}

// Commit implements lease.WriteSession. The step is durable before any session sees it.
func (n *session) Commit(ctx context.Context, job string, t lease.Token, read lease.State, step lease.Step) error {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.runningLocked(); err != nil {
		return err
	}
	o, err := s.table.Prepare(job, t, read, step)
	if err != nil {
		return err
	}
	return s.putLocked(encode(job, read.Records, o.Records), func() {
		s.table.Write(s.clock(), job, o.Records)
		s.records.notify(job)
		s.touched.notify(job)
	})
}

// Await implements lease.WriteSession.
func (n *session) Await(ctx context.Context, job string, since int64) (lease.State, error) {
	s := n.s
	s.mu.Lock()
	if s.table.Touched(job) <= since {
		changed, leave := s.touched.waitLocked(job)
		s.mu.Unlock()
		defer s.leave(leave)
		if err := s.sleep(ctx, changed); err != nil {
			return lease.State{}, err
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	return s.table.State(job), s.err
}
