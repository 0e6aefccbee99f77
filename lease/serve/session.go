package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/internal/rpc"
)

// errUnknownJob: the job is not one in consistent mode here.
var errUnknownJob = fmt.Errorf("%w: no job in consistent mode here", lease.ErrUnavailable)

// OpenReader implements lease.Readers, for readers in this process.
func (s *Store) OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (lease.ReadSession, error) {
	o, err := s.open(ctx, ttl, jobs, nil)
	if err != nil {
		return nil, err
	}
	return newSession(s, o.id, o.ttl), nil
}

// OpenWriter implements lease.Writers. The session is this process's alone: no
// call over gRPC leads to it.
func (s *Store) OpenWriter(ctx context.Context, ttl time.Duration) (lease.WriteSession, error) {
	if err := lease.CheckTTL(ttl); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	id := s.table.OpenWriter(s.clock(), ttl)
	s.rouse()
	return newSession(s, id, ttl), nil
}

// look looks up what a job's config says.
func (s *Store) look(ctx context.Context, job string) (Terms, error) {
	if s.terms == nil {
		return Terms{LeaseTime: lease.MaxTTL}, nil
	}
	t, err := s.terms(ctx, job)
	if err != nil {
		return Terms{}, fmt.Errorf("%w: the lease duration and access of job %s: %w", lease.ErrUnavailable, job, err)
	}
	return t, nil
}

// limit is the longest time for which a session may hold up a change of a job.
func (t Terms) limit(job string) (time.Duration, error) {
	if t.LeaseTime <= 0 {
		return 0, fmt.Errorf("%w: %s", errUnknownJob, job)
	}
	return min(max(t.LeaseTime, lease.MinTTL), lease.MaxTTL), nil
}

// limit is that of a job that a caller may own; by is nil for one of this process.
func (s *Store) limit(ctx context.Context, job string, by *opening) (time.Duration, error) {
	t, err := s.look(ctx, job)
	if err == nil && by != nil {
		err = s.owns(by.from, job, by.tasks[job], t)
	}
	if err != nil {
		return 0, err
	}
	return t.limit(job)
}

// grantedLocked reports whether anything is granted in a job. The lock is held.
func (s *Store) grantedLocked(job string, limit time.Duration) error {
	wait := max(s.promises.before[job], s.promises.before[allJobs])
	if s.terms != nil && !s.fresh {
		// The storage may be an older copy of the one that sessions were granted from.
		wait = max(wait, limit)
	}
	if s.clock()-s.began < wait {
		return fmt.Errorf("%w: nothing is granted in job %s for %s after a restart, until what was granted before has run out", lease.ErrUnavailable, job, wait)
	}
	return nil
}

// opened is what came of an opening.
type opened struct {
	id     uint64
	ttl    time.Duration
	jobs   []string
	ticket ticket // of a session that was opened over gRPC
}

// opening is who asks over gRPC for a session, and as which tasks.
type opening struct {
	from  rpc.Origin
	tasks map[string]string
}

// open opens a reader's session; by is nil for one of this process.
func (s *Store) open(ctx context.Context, ttl time.Duration, jobs []string, by *opening) (o opened, err error) {
	if err := errors.Join(lease.CheckTTL(ttl), lease.CheckJobs(jobs)); err != nil {
		return o, err
	}
	limits := map[string]time.Duration{}
	var refused error
	for _, job := range jobs {
		limit, err := s.limit(ctx, job, by)
		if err == nil {
			limits[job] = limit
		} else if refused == nil {
			refused = err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return o, s.err
	}
	if by != nil {
		if err := s.remote.room(by.from); err != nil {
			return o, err
		}
	}
	for _, job := range slices.Sorted(maps.Keys(limits)) {
		if err := s.grantedLocked(job, limits[job]); err != nil {
			refused = err
			delete(limits, job)
			continue
		}
		o.jobs = append(o.jobs, job)
	}
	if len(limits) == 0 {
		return o, refused
	}
	if err := s.promiseLocked(limits, ttl); err != nil {
		return o, err
	}
	if o.id, o.ttl, err = s.table.Open(s.clock(), ttl, limits); err != nil {
		return o, err
	}
	s.promisedLocked(o.id, limits, ttl)
	if by != nil {
		o.ticket = s.remote.admit(o.id, by.from, by.tasks)
	}
	s.rouse()
	return o, nil
}

// join lets a session take part in a further job.
func (s *Store) join(ctx context.Context, id uint64, job string) error {
	if err := lease.CheckJobs([]string{job}); err != nil {
		return err
	}
	s.mu.Lock()
	ttl, named := s.table.Asked(id)
	s.mu.Unlock()
	if _, ok := named[job]; ok {
		return nil
	}
	limit, err := s.limit(ctx, job, nil)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.err, s.grantedLocked(job, limit)); err != nil {
		return err
	}
	return s.enterLocked(id, ttl, map[string]time.Duration{job: limit})
}

// enterLocked gives a session its limits in jobs. The lock is held.
func (s *Store) enterLocked(id uint64, ttl time.Duration, limits map[string]time.Duration) error {
	if err := s.promiseLocked(limits, ttl); err != nil {
		return err
	}
	for job, limit := range limits {
		if err := s.table.Join(s.clock(), id, job, limit); err != nil {
			return err
		}
	}
	s.promisedLocked(id, limits, ttl)
	return nil
}

// renew renews a session, and returns for how long. What a job's config says is
// looked up each time, so a change of it is in force one renewal later. may, if it is not
// nil, says for each job why the session is not to be renewed; a job that is gone, or
// cannot be read, is as before.
func (s *Store) renew(ctx context.Context, id uint64, may func(job string, t Terms) error) (time.Duration, error) {
	limits := map[string]time.Duration{}
	s.mu.Lock()
	ttl, named := s.table.Asked(id)
	s.mu.Unlock()
	for job, was := range named {
		t, err := s.look(ctx, job)
		if err != nil {
			continue
		}
		limit, err := t.limit(job)
		if err != nil {
			continue
		}
		if limit != was {
			limits[job] = limit
		}
		if may != nil {
			if err := may(job, t); err != nil {
				return 0, err
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	if err := s.enterLocked(id, ttl, limits); err != nil {
		return 0, err
	}
	granted, err := s.table.KeepAlive(s.clock(), id)
	if err != nil {
		return 0, err
	}
	for job, limit := range limits {
		limits[job] = max(limit, granted) // what was granted before lasts on
	}
	s.promisedLocked(id, limits, ttl)
	return granted, nil
}

// end ends a session.
func (s *Store) end(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.overLocked(id, s.table.Close(id))
	s.rouse()
}

// overLocked takes note of a session that is over. The lock is held.
func (s *Store) overLocked(id uint64, held []string) {
	s.remote.drop(id)
	s.promises.drop(id)
	for _, job := range held {
		s.touched.notify(job)
	}
}

func (s *Store) acquire(id uint64, job string, c lease.Claim) (lease.Seen, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.runningLocked(); err != nil {
		return s.table.Seen(job), false, err
	}
	seen, ok, err := s.table.Acquire(s.clock(), id, job, c)
	if ok {
		s.touched.notify(job)
	}
	return seen, ok, err
}

func (s *Store) release(id uint64, job string, c lease.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	changed, err := s.table.Release(s.clock(), id, job, c)
	if changed {
		s.touched.notify(job)
	}
	return err
}

// session is a lease in the table, held by this process.
type session struct {
	s   *Store
	id  uint64
	ttl atomic.Int64
}

func newSession(s *Store, id uint64, ttl time.Duration) *session {
	n := &session{s: s, id: id}
	n.ttl.Store(int64(ttl))
	return n
}

func (n *session) ID() uint64         { return n.id }
func (n *session) TTL() time.Duration { return time.Duration(n.ttl.Load()) }

func (n *session) KeepAlive(ctx context.Context) error {
	ttl, err := n.s.renew(ctx, n.id, nil)
	if err == nil {
		n.ttl.Store(int64(ttl))
	}
	return err
}

func (n *session) Join(ctx context.Context, job string) error { return n.s.join(ctx, n.id, job) }

func (n *session) Close(ctx context.Context) error {
	n.s.end(n.id)
	return nil
}

func (n *session) Acquire(ctx context.Context, job string, c lease.Claim) (lease.Seen, bool, error) {
	return n.s.acquire(n.id, job, c)
}

func (n *session) Release(ctx context.Context, job string, c lease.Claim) error {
	return n.s.release(n.id, job, c)
}

func (n *session) Watch(ctx context.Context, job string) (lease.Watcher, error) {
	return &watcher{s: n.s, job: job}, ctx.Err()
}
