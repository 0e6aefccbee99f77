package etcdlease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/lease"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/stats"
)

// history is what a Store has been told by etcd, to notice an etcd that has gone
// back: restored from a snapshot, forced into a new cluster with a member that lagged,
// or started with an older copy of its data. Two things give it away.
//
// One is a revision below one that it has told before, in whatever answer. Members
// lag, so a linearizable read confirms it.
//
// The other is for an etcd whose revision has passed the old one, because it is written to
// or because etcdutl was told to bump it: what it says was stored at a revision that it
// has told of before, or that it has compacted all that. An etcd is not exchanged
// without its connections being lost, so that is looked up after a new connection, before
// anything counts that has come over it.
type history struct {
	conns   atomic.Int64  // connections begun
	proven  atomic.Int64  // connections when etcd's past was last found to be what it told
	proving chan struct{} // holds a token while that is looked up

	mu       sync.Mutex
	era      int             // how often etcd has gone back
	over     chan struct{}   // closed when it goes back once more
	revision int64           // the highest that was told in this era
	until    int64           // the same, over connections after which the past was looked up
	told     map[string]told // by job, the newest
}

// told is what is stored of a job's records at a revision, by key.
type told struct {
	revision int64
	records  records
}

// records are those of a job by key: guard, bridge, and the random number that goes
// with every change of them. They are never changed once they are told.
type records map[string]stored

type stored struct {
	value string
	mod   int64
}

// recordsIn are the job's records in an answer.
func (k keys) recordsIn(resp *clientv3.GetResponse) records {
	out := records{}
	for _, kv := range resp.Kvs {
		if key := string(kv.Key); strings.HasPrefix(key, k.records()) {
			out[key] = stored{string(kv.Value), kv.ModRevision}
		}
	}
	return out
}

// after is what events make of them.
func (r records) after(k keys, events []*clientv3.Event) records {
	r = maps.Clone(r)
	for _, e := range events {
		key := string(e.Kv.Key)
		if delete(r, key); e.Type == clientv3.EventTypePut && strings.HasPrefix(key, k.records()) {
			r[key] = stored{string(e.Kv.Value), e.Kv.ModRevision}
		}
	}
	return r
}

func newHistory() *history {
	return &history{over: make(chan struct{}), told: map[string]told{}, proving: make(chan struct{}, 1)}
}

// A connection is counted before the first request is sent on it.
type counter struct{ conns *atomic.Int64 }

func (c counter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c counter) HandleRPC(context.Context, stats.RPCStats)                         {}
func (c counter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (c counter) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnBegin); ok {
		c.conns.Add(1)
	}
}

// mark is what had been told when a request was sent.
type mark struct {
	era      int
	revision int64
}

func (h *history) mark() mark {
	h.mu.Lock()
	defer h.mu.Unlock()
	return mark{h.era, h.revision}
}

// ended is closed when etcd has gone back since the era, and is nil if it has before.
func (h *history) ended(era int) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.era != era {
		return nil
	}
	return h.over
}

// learn takes in a revision, and false if it belongs to an era that is over.
func (h *history) learn(era int, revision int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.era != era {
		return false
	}
	h.revision = max(h.revision, revision)
	if h.proven.Load() == h.conns.Load() {
		h.until = max(h.until, revision)
	}
	return true
}

// tell takes in what is stored of a job's records.
func (h *history) tell(era int, job string, t told) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.era == era && h.told[job].revision <= t.revision {
		h.told[job] = t
	}
}

// of returns what was told of jobs, of all if none is named.
func (h *history) of(jobs []string) map[string]told {
	h.mu.Lock()
	defer h.mu.Unlock()
	if jobs == nil {
		return maps.Clone(h.told)
	}
	of := map[string]told{}
	for _, job := range jobs {
		if t, ok := h.told[job]; ok {
			of[job] = t
		}
	}
	return of
}

// goBack begins another era, unless that has happened meanwhile.
func (s *Store) goBack(m mark, revision int64, why string) error {
	h := s.past
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.era == m.era {
		s.log.Error("etcd has gone back to an earlier state", "reason", why)
		h.era++
		h.revision, h.until, h.told = revision, revision, map[string]told{}
		close(h.over)
		h.over = make(chan struct{})
	}
	return fmt.Errorf("%w: %s", lease.ErrWentBack, why)
}

// heard takes in the revision of an answer to a request that was sent at m, and makes
// sure that it came from an etcd whose past is what was told.
func (s *Store) heard(ctx context.Context, m mark, revision int64) error {
	if err := s.passed(ctx, s.client, m, revision); err != nil {
		return err
	}
	return s.prove(ctx, m, revision)
}

// prove looks etcd's past up, once after each new connection.
func (s *Store) prove(ctx context.Context, m mark, now int64) error {
	h := s.past
	if h.proven.Load() == h.conns.Load() {
		return nil
	}
	select {
	case h.proving <- struct{}{}:
		defer func() { <-h.proving }()
	case <-ctx.Done():
		return ctx.Err()
	}
	conns := h.conns.Load()
	if h.proven.Load() == conns {
		return nil
	}
	// Others wait for it, and some that ask have no deadline.
	looking, cancel := context.WithTimeout(ctx, lookUpWithin)
	defer cancel()
	err := s.lookUp(looking, s.client, m, now)
	if looking.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: its past cannot be looked up within %s", lease.ErrUnavailable, lookUpWithin)
	}
	if err == nil {
		h.proven.Store(conns)
		h.learn(m.era, now)
	}
	return err
}

// lookUpWithin bounds a look at etcd's past.
const lookUpWithin = 5 * time.Second

// lookUp makes sure that etcd still has what was told, over the connections of a client
// that may be new.
func (s *Store) lookUp(ctx context.Context, kv clientv3.KV, m mark, now int64) error {
	h := s.past
	h.mu.Lock()
	until := h.until
	h.mu.Unlock()
	// A compaction by time leaves the last ten seconds at least, and a restore with
	// --mark-compacted nothing. After longer without etcd they cannot be told apart.
	_, err := kv.Get(ctx, s.suspended, clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithRev(until))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return s.goBack(m, now, fmt.Sprintf("revision %d, which it was at before the connection was lost, is compacted away", until))
	case errors.Is(err, rpctypes.ErrFutureRev):
		return s.goBack(m, now, fmt.Sprintf("it has not come to revision %d yet, where it was before the connection was lost", until))
	case err != nil:
		return explain(ctx, err)
	}
	for job, t := range h.of(nil) {
		if err := s.unchanged(ctx, kv, m, job, t); err != nil && !errors.Is(err, errCompacted) {
			return err
		}
	}
	return nil
}

// passed takes in the revision of an answer, which is none below what was told before.
func (s *Store) passed(ctx context.Context, kv clientv3.KV, m mark, revision int64) error {
	if !s.past.learn(m.era, revision) {
		return lease.ErrWentBack
	}
	if revision >= m.revision {
		return nil
	}
	m = s.past.mark()
	resp, err := kv.Get(ctx, s.suspended, clientv3.WithPrefix(), clientv3.WithCountOnly())
	switch {
	case err != nil:
		return explain(ctx, err)
	case resp.Header.Revision < m.revision:
		return s.goBack(m, resp.Header.Revision, fmt.Sprintf("it is at revision %d and was at %d", resp.Header.Revision, m.revision))
	}
	return nil
}

// remember makes sure that etcd's past is what it has told of jobs, or of all if none
// is named. What cannot be looked up, since it has changed and is compacted away,
// ends a session that needs it, and is forgotten if no job is named.
func (s *Store) remember(ctx context.Context, m mark, jobs []string) error {
	for job, t := range s.past.of(jobs) {
		err := s.unchanged(ctx, s.client, m, job, t)
		if errors.Is(err, errCompacted) && jobs == nil {
			s.past.forget(job, t.revision)
		} else if err != nil {
			return err
		}
	}
	return nil
}

var errCompacted = fmt.Errorf("%w: what it has seen is compacted away", lease.ErrLost)

func (s *Store) unchanged(ctx context.Context, kv clientv3.KV, m mark, job string, t told) error {
	k := s.keys(job)
	resp, err := kv.Get(ctx, k.records(), clientv3.WithPrefix())
	if err != nil {
		return explain(ctx, err)
	}
	if err := s.passed(ctx, kv, m, resp.Header.Revision); err != nil {
		return err
	}
	if maps.Equal(k.recordsIn(resp), t.records) {
		return nil
	}
	now := resp.Header.Revision
	resp, err = kv.Get(ctx, k.records(), clientv3.WithPrefix(), clientv3.WithRev(t.revision))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return errCompacted
	case err != nil:
		return explain(ctx, err)
	case !maps.Equal(k.recordsIn(resp), t.records):
		return s.goBack(m, now, fmt.Sprintf("the records of job %s were others at revision %d", job, t.revision))
	}
	return nil
}

// why finds out at once whether a lease is lost because etcd has gone back, which
// the next session would be told otherwise, as if it were news.
func (s *Store) why(ctx context.Context, m mark, lost error) error {
	resp, err := s.client.Get(ctx, s.suspended, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err == nil {
		err = s.heard(ctx, m, resp.Header.Revision)
	}
	if err == nil {
		err = s.remember(ctx, m, nil)
	}
	if errors.Is(err, lease.ErrWentBack) {
		return err
	}
	return lost
}

// forget drops what was told of a job up to a revision.
func (h *history) forget(job string, revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told[job].revision <= revision {
		delete(h.told, job)
	}
}
