package front

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/internal/rpc"
)

// lookEvery is how often etcd is asked in which jobs a session holds claims that it does not
// speak of, and has got at another front. It is asked when a session comes here, too.
const lookEvery = time.Minute

// lookWithin is for how long a renewal waits for that, or an eighth of the lease time if that
// is less: where etcd is silent but for the stream of keepalives, sessions are renewed all the
// same.
const lookWithin = 500 * time.Millisecond

// withClaims adds to what a session remembers the jobs in which it holds something all the same.
func (f *Front) withClaims(ctx context.Context, o rpc.Origin, l *etcdlease.PoolSession, jobs []etcdlease.Memory) ([]etcdlease.Memory, error) {
	held, err := l.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	jobs = slices.Clone(jobs)
	for _, name := range held {
		if slices.ContainsFunc(jobs, func(j etcdlease.Memory) bool { return j.Job == name }) {
			continue
		}
		switch _, err := f.limitOf(ctx, o, name); {
		case errors.Is(err, errUnknownJob): // it has gone: nothing waits for the claim
		case err != nil:
			return nil, err
		default:
			jobs = append(jobs, etcdlease.Memory{Job: name})
		}
	}
	if len(jobs) > lease.MaxJobs {
		return nil, fmt.Errorf("%w: it takes part in %d jobs, at most %d are allowed", errFull, len(jobs), lease.MaxJobs)
	}
	return jobs, nil
}

// hides reports whether a session that is known here holds something in a job that it does not
// take part in here, if it is time to look. Where that cannot be known it is as it was.
func (f *Front) hides(ctx context.Context, o rpc.Origin, x *session) bool {
	f.mu.Lock()
	due := time.Since(x.looked) > f.cfg.lookEvery
	var known []etcdlease.Memory
	for name := range x.jobs {
		known = append(known, etcdlease.Memory{Job: name})
	}
	f.mu.Unlock()
	if !due {
		return false
	}
	looking, cancel := context.WithTimeout(ctx, min(lookWithin, x.lease.TTL()/8))
	defer cancel()
	all, err := f.withClaims(looking, o, x.lease, known)
	if err != nil && !errors.Is(err, errFull) {
		return false
	}
	f.mu.Lock()
	x.looked = time.Now()
	f.mu.Unlock()
	return err != nil || len(all) > len(known)
}
