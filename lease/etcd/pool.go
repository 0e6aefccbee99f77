package etcdlease

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Pool carries the sessions of other processes, each an etcd lease of its own, over the
// connections of one Store and one more: all keepalives go over one stream. It keeps nothing
// that another Pool would need to carry a session on. All methods are safe for concurrent use.
type Pool struct {
	s        *Store
	renewers *renewers
}

// Pool begins one. A Store needs one at most; it ends with the Store.
func (s *Store) Pool() *Pool {
	p := &Pool{s: s, renewers: newRenewers(s)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wg.Go(p.renewers.run)
	}
	return p
}

// maxOwner bounds an owner's name.
const maxOwner = 2048

// PoolSession is a session that a Pool carries for its holder.
type PoolSession struct {
	p       *Pool
	n       *session
	owner   string
	checked atomic.Pointer[renewer] // over which it was last recalled

}

// Owner is what Open was given.
func (x *PoolSession) Owner() string { return x.owner }

// TTL is the lease time.
func (x *PoolSession) TTL() time.Duration { return x.n.ttl }

// Open opens a session under a name by which another Pool finds it: that of what its
// holder alone knows. It returns the revision of the store besides.
func (p *Pool) Open(ctx context.Context, ttl time.Duration, name, owner string) (*PoolSession, int64, error) {
	if len(owner) > maxOwner {
		return nil, 0, &assignment.FieldError{Field: "owner", Value: len(owner), Allowed: fmt.Sprintf("at most %d bytes", maxOwner)}
	}
	n, err := p.s.open(ctx, ttl)
	if err != nil {
		return nil, 0, err
	}
	m, err := n.begin()
	if err == nil {
		var resp *clientv3.PutResponse
		if resp, err = p.s.client.Put(ctx, p.key(name), sessionText(ttl, owner), clientv3.WithLease(n.id)); err != nil {
			err = explain(ctx, err)
		} else if err = p.s.heard(ctx, m, resp.Header.Revision); err == nil {
			return &PoolSession{p: p, n: n, owner: owner}, resp.Header.Revision, nil
		}
	}
	p.s.wg.Go(func() { n.discard() })
	return nil, 0, err
}

// Find finds a session by its name; the error matches lease.ErrLost if there is none. Nothing but Renew
// may be called on what it returns before Renew has returned without an error.
func (p *Pool) Find(ctx context.Context, name string) (*PoolSession, error) {
	m := p.s.past.mark()
	resp, err := p.s.client.Get(ctx, p.key(name))
	if err != nil {
		return nil, explain(ctx, err)
	}
	if err := p.s.heard(ctx, m, resp.Header.Revision); err != nil {
		return nil, err
	}
	if len(resp.Kvs) != 1 {
		return nil, lease.ErrLost
	}
	kv := resp.Kvs[0]
	ttl, owner, err := parseSession(kv.Value)
	if err == nil && kv.Lease == 0 {
		err = fmt.Errorf("%w: it has no lease", lease.ErrCorrupt)
	}
	if err != nil {
		return nil, fmt.Errorf("session record: %w", err)
	}
	return &PoolSession{p: p, owner: owner, n: &session{s: p.s, id: clientv3.LeaseID(kv.Lease), ttl: ttl, era: m.era, held: map[string]*held{}}}, nil
}

func (p *Pool) key(name string) string { return p.s.prefix + "_session/" + name }

// sessionText is the record of a session, which goes with its lease.
func sessionText(ttl time.Duration, owner string) string {
	return strconv.FormatInt(ttl.Milliseconds(), 10) + " " + owner
}

func parseSession(text []byte) (ttl time.Duration, owner string, err error) {
	ms, owner, ok := strings.Cut(string(text[:min(len(text), maxOwner+16)]), " ")
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || !ok || len(owner) > maxOwner || n > lease.MaxTTL.Milliseconds() || lease.CheckTTL(time.Duration(n)*time.Millisecond) != nil {
		return 0, "", fmt.Errorf("%w: session %.40q: a lease time in milliseconds and its owner are allowed", lease.ErrCorrupt, text)
	}
	return time.Duration(n) * time.Millisecond, owner, nil
}

// Renewed is what became of a renewal.
type Renewed struct {
	Revision int64
	// Held is what the session holds by job, if the memory was compared with the store.
	Held []Memory
}

// Renew renews the lease once: one keepalive is sent after the call, and its answer is
// what is returned. Before, and over the same connection, what the holder remembers is compared
// with the store, if the session is new here or the connection is. So the holder may
// count from before it asked, as with lease.Session.KeepAlive. Once they have been compared,
// may is asked about what is held, and its error is the answer: then nothing is renewed.
func (x *PoolSession) Renew(ctx context.Context, revision int64, jobs []Memory, may func(held []Memory) error) (Renewed, error) {
	m, err := x.n.begin()
	if err != nil {
		return Renewed{}, err
	}
	k, err := x.p.renewers.get(ctx)
	if err != nil {
		return Renewed{}, err
	}
	var out Renewed
	if x.checked.Load() != k {
		if out.Held, err = k.recall(ctx, m, x.n.id, revision, jobs); err != nil {
			return Renewed{}, err
		}
		if err := may(out.Held); err != nil {
			return Renewed{}, err
		}
	}
	a, err := k.renew(ctx, x.n.id)
	if err != nil {
		return Renewed{}, err
	}
	out.Revision = a.revision
	switch {
	case a.ttl == 0:
		return Renewed{}, x.p.s.why(ctx, m, lease.ErrLost)
	case a.ttl < x.n.ttl:
		return Renewed{}, fmt.Errorf("%w: renewed for %s only", lease.ErrUnavailable, a.ttl)
	}
	if err := x.p.s.passed(ctx, k.client, m, a.revision); err != nil {
		return Renewed{}, err
	}
	if a.revision < revision {
		if out.Revision, err = k.confirm(ctx, revision); err != nil {
			return Renewed{}, err
		}
	}
	x.checked.Store(k)
	return out, nil
}

// confirm reads the revision, which is none below one that was told.
func (k *renewer) confirm(ctx context.Context, told int64) (int64, error) {
	resp, err := k.client.Get(ctx, k.s.suspended, clientv3.WithPrefix(), clientv3.WithCountOnly())
	switch {
	case err != nil:
		return 0, explain(ctx, err)
	case resp.Header.Revision < told:
		return 0, fmt.Errorf("%w: it is at revision %d and was at %d", lease.ErrWentBack, resp.Header.Revision, told)
	}
	return resp.Header.Revision, nil
}

// Acquire is lease.ReadSession's.
func (x *PoolSession) Acquire(ctx context.Context, job string, c lease.Claim) (Acquired, error) {
	return x.n.acquire(ctx, job, c)
}

// Release is lease.ReadSession's.
func (x *PoolSession) Release(ctx context.Context, job string, c lease.Claim) error {
	return x.n.Release(ctx, job, c)
}

// Close gives the lease up and all that is held under it.
func (x *PoolSession) Close(ctx context.Context) error { return x.n.Close(ctx) }

// PoolWatcher tells a job's records in order, for any number of sessions.
type PoolWatcher struct{ w *watcher }

// Watch starts to watch a job. Its watch ends when etcd is found to have gone back, with
// lease.ErrWentBack, as do all sessions from before.
func (p *Pool) Watch(job string) *PoolWatcher {
	n := &session{s: p.s, ttl: silence, era: p.s.past.mark().era, held: map[string]*held{}}
	return &PoolWatcher{&watcher{n: n, job: job, k: p.s.keys(job), leave: n.use(job)}}
}

// Next is lease.Watcher's.
func (w *PoolWatcher) Next(ctx context.Context) (Records, error) {
	seen, err := w.w.Next(ctx)
	if err != nil {
		return Records{}, err
	}
	return Records{seen, w.w.records.fingerprint()}, nil
}

// Close is lease.Watcher's.
func (w *PoolWatcher) Close() error { return w.w.Close() }

// Jobs are those in which the session holds anything, by the keys under its lease. It asks
// etcd once.
func (x *PoolSession) Jobs(ctx context.Context) (jobs []string, err error) {
	resp, err := x.p.s.client.TimeToLive(ctx, x.n.id, clientv3.WithAttachedKeys())
	if err != nil {
		return nil, explain(ctx, err)
	}
	for _, key := range resp.Keys {
		if job := x.p.s.claimed(string(key)); job != "" {
			jobs = append(jobs, job)
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs), nil
}

// claimed is the job in which a key is a holder's, "" for every other key.
func (s *Store) claimed(key string) string {
	rest, ok := strings.CutPrefix(key, s.prefix)
	job, part, _ := strings.Cut(rest, "/")
	if !ok || !strings.HasPrefix(part, "h/") || assignment.ValidateJobName(job) != nil {
		return ""
	}
	return job
}
