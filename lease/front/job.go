package front

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/internal/rpc"
)

const (
	// lookUpEvery is how often the lease_duration and access of a job that has sessions are
	// looked up.
	lookUpEvery = 5 * time.Second
	// lookUpWithin bounds that.
	lookUpWithin = 3 * time.Second
)

// errUnknownJob: the job is not one in consistent mode here.
var errUnknownJob = fmt.Errorf("%w: no job in consistent mode here", lease.ErrUnavailable)

// job is one that sessions here take part in: its records, watched once for all of them.
type job struct {
	name     string
	sessions int // the front's lock guards it
	cancel   context.CancelFunc

	mu      sync.Mutex
	limit   time.Duration // its lease_duration
	access  assignment.Access
	asked   bool // access has been looked up
	records etcdlease.Records
	fresh   bool          // the records have been read, and are watched
	changed chan struct{} // closed when the records or fresh change
}

// look returns the records, whether they are watched, and what is closed when that changes.
func (j *job) look() (etcdlease.Records, bool, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.records, j.fresh, j.changed
}

func (j *job) leaseTime() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.limit
}

// accessKnown is what was looked up last, if it ever was.
func (j *job) accessKnown() (a assignment.Access, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.access, j.asked
}

func (j *job) setAccess(a assignment.Access) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.access, j.asked = a, true
}

func (j *job) set(change func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change()
	close(j.changed)
	j.changed = make(chan struct{})
}

// limit is the longest time for which a session may hold up a change of a job.
func (f *Front) limit(ctx context.Context, name string) (time.Duration, error) {
	d, err := f.cfg.LeaseTime(ctx, name)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: the lease duration of job %s: %w", lease.ErrUnavailable, name, err)
	case d <= 0:
		return 0, fmt.Errorf("%w: %s", errUnknownJob, name)
	}
	return min(max(d, lease.MinTTL), lease.MaxTTL), nil
}

// allowed reports whether a caller may take part in a job as a task, and for how long it
// may hold up a change of it.
func (f *Front) allowed(ctx context.Context, o rpc.Origin, name, task string) (time.Duration, error) {
	if err := f.own(ctx, o, name, task); err != nil {
		return 0, err
	}
	return f.limitOf(ctx, o, name)
}

// limitOf is limit of a job that a caller names.
func (f *Front) limitOf(ctx context.Context, o rpc.Origin, name string) (time.Duration, error) {
	f.mu.Lock()
	j := f.jobs[name]
	f.mu.Unlock()
	if j != nil {
		return j.leaseTime(), nil
	}
	if err := f.unknown(o.Peer); err != nil {
		return 0, err
	}
	limit, err := f.limit(ctx, name)
	if err == nil {
		f.known(o.Peer)
	}
	return limit, err
}

// enterLocked makes a session take part in a job. The lock is held.
func (f *Front) enterLocked(x *session, name, task string, limit time.Duration) {
	if p := x.jobs[name]; p != nil {
		if task != "" {
			p.task = task
		}
		return
	}
	j := f.jobs[name]
	if j == nil {
		ctx, cancel := context.WithCancel(f.ctx)
		j = &job{name: name, limit: limit, cancel: cancel, changed: make(chan struct{})}
		f.jobs[name] = j
		pool := f.pool
		f.wg.Go(func() { f.follow(ctx, pool, j) })
		f.wg.Go(func() { f.lookUp(ctx, j) })
	}
	j.sessions++
	x.jobs[name] = &part{job: j, task: task}
}

// follow watches a job's records until the last session has left.
func (f *Front) follow(ctx context.Context, pool *etcdlease.Pool, j *job) {
	pause := 20 * time.Millisecond
	for ctx.Err() == nil {
		w := pool.Watch(j.name)
		var err error
		for err == nil {
			var r etcdlease.Records
			if r, err = w.Next(ctx); err == nil {
				pause = 20 * time.Millisecond
				j.set(func() { j.records, j.fresh = r, true })
			}
		}
		_ = w.Close()
		if ctx.Err() != nil {
			return
		}
		// Until it is watched again, no watch is told that the records are as they were.
		j.set(func() {
			j.fresh = false
			if errors.Is(err, lease.ErrWentBack) {
				j.records = etcdlease.Records{}
			}
		})
		f.cfg.Logger.Warn("watch of guard and bridge broken", "job", j.name, "error", err)
		backoff.Sleep(ctx, backoff.Jitter(pause))
		pause = min(2*pause, time.Second)
	}
}

// lookUp keeps up with the job's lease_duration and access. While one cannot be had it stays as it
// was, and so do both of a job that is gone: a right that went with the job is no right withdrawn.
func (f *Front) lookUp(ctx context.Context, j *job) {
	for backoff.Sleep(ctx, backoff.Jitter(f.cfg.lookUpEvery)) {
		looking, cancel := context.WithTimeout(ctx, lookUpWithin)
		limit, err := f.limit(looking, j.name)
		if err == nil {
			j.mu.Lock()
			j.limit = limit
			j.mu.Unlock()
		}
		if policy, _ := f.cfg.Rights.Policy(); policy != nil && f.cfg.Access != nil && !errors.Is(err, errUnknownJob) {
			if a, err := f.cfg.Access(looking, j.name); err == nil {
				j.setAccess(a)
			}
		}
		cancel()
	}
}
