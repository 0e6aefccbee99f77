package front

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
)

const (
	// lookUpEvery is how often the lease_duration of a job that has sessions is looked up.
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

// allowed reports whether a caller may take part in a job, and for how long it may
// hold up a change of it.
func (f *Front) allowed(ctx context.Context, o origin, name string) (time.Duration, error) {
	if err := f.cfg.Authorize(ctx, name); err != nil {
		return 0, err
	}
	f.mu.Lock()
	j := f.jobs[name]
	f.mu.Unlock()
	if j != nil {
		return j.leaseTime(), nil
	}
	if err := f.unknown(o.peer); err != nil {
		return 0, err
	}
	limit, err := f.limit(ctx, name)
	if err == nil {
		f.known(o.peer)
	}
	return limit, err
}

// enterLocked makes a session take part in a job. The lock is held.
func (f *Front) enterLocked(x *session, name string, limit time.Duration) {
	if x.jobs[name] != nil {
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
	x.jobs[name] = &part{job: j}
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

// lookUp keeps up with the job's lease_duration. While it cannot be had it stays as it was.
func (f *Front) lookUp(ctx context.Context, j *job) {
	for backoff.Sleep(ctx, backoff.Jitter(lookUpEvery)) {
		looking, cancel := context.WithTimeout(ctx, lookUpWithin)
		limit, err := f.limit(looking, j.name)
		cancel()
		if err == nil {
			j.mu.Lock()
			j.limit = limit
			j.mu.Unlock()
		}
	}
}
