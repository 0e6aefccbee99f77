package etcdlease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// session is one etcd lease.
type session struct {
	s       *Store
	id      clientv3.LeaseID
	ttl     time.Duration
	era     int          // of the store's history
	checked atomic.Int64 // connections when etcd was last found not to have gone back

	mu        sync.Mutex
	held      map[string]*held     // by job
	followers map[string]*follower // by job, of an assigner
	closed    bool
}

// held is what a session holds in a job, guard and bridge, by key. While it is
// watched or led, the records themselves count too.
type held struct {
	keys map[string]holder
	uses int
}

// holder is a holder key as it must be found.
type holder struct {
	value   string
	created int64
}

func (n *session) ID() uint64         { return uint64(n.id) }
func (n *session) TTL() time.Duration { return n.ttl }

// Join implements lease.ReadSession: a lease of etcd is for all jobs.
func (n *session) Join(ctx context.Context, job string) error {
	return lease.CheckJobs([]string{job})
}

// begin is the start of a request.
func (n *session) begin() (mark, error) {
	m := n.s.past.mark()
	if m.era != n.era {
		return m, lease.ErrWentBack
	}
	return m, nil
}

// KeepAlive implements lease.Session. After a new connection it makes sure that
// the etcd which has renewed the lease is the one in which the session holds what it holds.
func (n *session) KeepAlive(ctx context.Context) error {
	m, err := n.begin()
	if err != nil {
		return err
	}
	resp, err := n.s.client.KeepAliveOnce(ctx, n.id)
	if err != nil {
		if err = explain(ctx, err); errors.Is(err, lease.ErrLost) {
			err = n.s.why(ctx, m, err)
		}
		return err
	}
	if granted := time.Duration(resp.TTL) * time.Second; granted < n.ttl {
		return fmt.Errorf("%w: renewed for %s only", lease.ErrUnavailable, granted)
	}
	if err := n.s.heard(ctx, m, resp.Revision); err != nil {
		return err
	}
	conns := n.s.past.conns.Load()
	if n.checked.Load() == conns {
		return nil
	}
	if err := n.check(ctx, m); err != nil {
		return err
	}
	n.checked.Store(conns)
	return nil
}

// check compares what is told and held with what is there.
func (n *session) check(ctx context.Context, m mark) error {
	n.mu.Lock()
	jobs, before := make([]string, 0, len(n.held)), map[string]holder{}
	for job, h := range n.held {
		jobs = append(jobs, job)
		maps.Copy(before, h.keys)
	}
	n.mu.Unlock()
	if err := n.s.remember(ctx, m, jobs); err != nil {
		return err
	}
	for key, want := range before {
		resp, err := n.s.client.Get(ctx, key)
		if err != nil {
			return explain(ctx, err)
		}
		if err := n.s.heard(ctx, m, resp.Header.Revision); err != nil {
			return err
		}
		if len(resp.Kvs) == 1 && string(resp.Kvs[0].Value) == want.value && resp.Kvs[0].CreateRevision == want.created {
			continue
		}
		if n.stillHolds(key, want) {
			return n.s.goBack(m, resp.Header.Revision, fmt.Sprintf("%s is not what this session has put there", key))
		}
	}
	return nil
}

// stillHolds reports whether the key has not been let go of meanwhile.
func (n *session) stillHolds(key string, h holder) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, held := range n.held {
		if now, ok := held.keys[key]; ok && now == h {
			return true
		}
	}
	return false
}

// use counts the records of a job until leave is called.
func (n *session) use(job string) (leave func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heldLocked(job).uses++
	return sync.OnceFunc(func() { n.change(job, func(h *held) { h.uses-- }) })
}

// heldLocked is what is held in a job. The lock is held.
func (n *session) heldLocked(job string) *held {
	h := n.held[job]
	if h == nil {
		h = &held{keys: map[string]holder{}}
		n.held[job] = h
	}
	return h
}

func (n *session) change(job string, f func(h *held)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.heldLocked(job)
	if f(h); h.uses == 0 && len(h.keys) == 0 {
		delete(n.held, job)
	}
}

// discard gives back what is not used, if etcd can be reached.
func (n *session) discard() {
	ctx, cancel := context.WithTimeout(n.s.ctx, n.ttl)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		n.s.log.Info("session not given back: it runs out", "session", n.ID(), "error", err)
	}
}

func (n *session) Close(ctx context.Context) error {
	n.unfollow("", true)
	if _, err := n.s.client.Revoke(ctx, n.id); err != nil {
		if err = explain(ctx, err); !errors.Is(err, lease.ErrLost) {
			return err
		}
	}
	return nil
}

// keys of a job.
type keys string

func (s *Store) keys(job string) keys { return keys(s.prefix + job + "/") }

func (k keys) head() string          { return string(k) + "head" }
func (k keys) records() string       { return string(k) + "r/" }
func (k keys) guard() string         { return string(k) + "r/guard" }
func (k keys) bridge() string        { return string(k) + "r/bridge" }
func (k keys) nonce() string         { return string(k) + "r/nonce" }
func (k keys) leader() string        { return string(k) + "leader" }
func (k keys) guardHolders() string  { return string(k) + "h/guard/" }
func (k keys) bridgeHolders() string { return string(k) + "h/bridge/" }

func (k keys) record(c lease.Claim) string {
	if c.Bridge() {
		return k.bridge()
	}
	return k.guard()
}

func (k keys) holder(c lease.Claim, id clientv3.LeaseID) string {
	name := strconv.FormatInt(int64(id), 16)
	if c.Bridge() {
		return k.bridgeHolders() + name
	}
	return k.guardHolders() + name
}

// granting is the record that grants a claim, as it must stand.
func granting(c lease.Claim) string {
	var text []byte
	if c.Bridge() {
		text, _ = lease.Bridge{From: c.From, To: c.To, Open: true}.MarshalText()
	} else {
		text, _ = lease.Guard{Generation: c.To, Open: true}.MarshalText()
	}
	return string(text)
}

func value(c lease.Claim) string {
	text, _ := c.MarshalText()
	return string(text)
}

func (n *session) Acquire(ctx context.Context, job string, c lease.Claim) (lease.Seen, bool, error) {
	a, err := n.acquire(ctx, job, c)
	return a.Seen, a.OK, err
}

func (n *session) acquire(ctx context.Context, job string, c lease.Claim) (Acquired, error) {
	m, err := n.begin()
	if err != nil {
		return Acquired{}, err
	}
	k := n.s.keys(job)
	look, key := clientv3.OpGet(k.records(), clientv3.WithPrefix()), k.holder(c, n.id)
	resp, err := n.s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(k.record(c)), "=", granting(c)), n.s.running()).
		Then(look, clientv3.OpPut(key, value(c), clientv3.WithLease(n.id)), clientv3.OpGet(key)).
		Else(look, n.s.suspensions()).
		Commit()
	if err != nil {
		return Acquired{}, explain(ctx, err)
	}
	if err := n.s.heard(ctx, m, resp.Header.Revision); err != nil {
		return Acquired{}, err
	}
	r := k.recordsIn(got(resp, 0))
	n.s.past.tell(n.era, job, told{resp.Header.Revision, r})
	a := Acquired{OK: resp.Succeeded}
	if resp.Succeeded {
		a.Created = got(resp, 2).Kvs[0].CreateRevision
		n.change(job, func(h *held) { h.keys[key] = holder{value(c), a.Created} })
	}
	seen, err := k.seen(got(resp, 0), resp.Header.Revision)
	if err == nil && !resp.Succeeded && got(resp, 1).Count > 0 {
		err = lease.ErrSuspended
	}
	a.Records = Records{seen, r.fingerprint()}
	return a, err
}

func (n *session) Release(ctx context.Context, job string, c lease.Claim) error {
	m, err := n.begin()
	if err != nil {
		return err
	}
	key := n.s.keys(job).holder(c, n.id)
	n.change(job, func(h *held) {
		if h.keys[key].value == value(c) {
			delete(h.keys, key)
		}
	})
	resp, err := n.s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(key), "=", value(c))).
		Then(clientv3.OpDelete(key)).
		Commit()
	if err != nil {
		return explain(ctx, err)
	}
	return n.s.heard(ctx, m, resp.Header.Revision)
}

// got is the i-th answer of a transaction, to a Get.
func got(resp *clientv3.TxnResponse, i int) *clientv3.GetResponse {
	return (*clientv3.GetResponse)(resp.Responses[i].GetResponseRange())
}

// seen decodes guard and bridge.
func (k keys) seen(got *clientv3.GetResponse, revision int64) (lease.Seen, error) {
	seen := lease.Seen{Revision: revision}
	for _, kv := range got.Kvs {
		if err := k.set(&seen, string(kv.Key), kv.Value); err != nil {
			return lease.Seen{}, err
		}
	}
	return seen, nil
}

// set decodes one record; nothing stands for a deleted one.
func (k keys) set(seen *lease.Seen, key string, text []byte) (err error) {
	switch key {
	case k.guard():
		err = seen.Guard.UnmarshalText(text)
	case k.bridge():
		err = seen.Bridge.UnmarshalText(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func parseHead(key string, text []byte) (assignment.Generation, error) {
	n, err := strconv.ParseInt(string(text[:min(len(text), 20)]), 10, 64)
	if err != nil || n <= 0 || assignment.Generation(n) > assignment.MaxGeneration {
		return 0, fmt.Errorf("%s: %w: head %.40q is no generation", key, lease.ErrCorrupt, text)
	}
	return assignment.Generation(n), nil
}
