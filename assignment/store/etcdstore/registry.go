package etcdstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/changes"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// withdrawTimeout bounds the withdrawal of an entry when etcd does not answer:
// its lease ends it anyway.
const withdrawTimeout = 2 * time.Second

// Register implements store.Registry. The entry lies under an etcd lease of its own.
func (s *Store) Register(ctx context.Context, c store.Candidate) (store.Registration, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := &registration{s: s, entry: s.layout.EncodeCandidate(c), done: make(chan struct{})}
	call, done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := r.enter(call, true); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(s.ctx)
	r.stop = stop
	if !s.goRun(func() { r.run(run) }) {
		stop()
		r.revoke(r.lease)
		return nil, store.ErrClosed
	}
	return r, nil
}

// registration keeps one entry.
type registration struct {
	s     *Store
	entry record.KV
	lease clientv3.LeaseID
	stop  context.CancelFunc
	done  chan struct{}

	mu        sync.Mutex
	rewritten int
	err       error // of the last look at the entry
}

// State implements store.Registration.
func (r *registration) State() (rewritten int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rewritten, r.err
}

// seen keeps what came of a look at the entry, or of writing it.
func (r *registration) seen(written bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	if written && err == nil {
		r.rewritten++
	}
}

// Close implements store.Registration.
func (r *registration) Close() error {
	r.stop()
	<-r.done
	return nil
}

// run keeps the lease alive and the entry as it was written, and enters again when the
// lease is lost.
func (r *registration) run(ctx context.Context) {
	defer close(r.done)
	defer func() { r.revoke(r.lease) }()
	for {
		r.keep(ctx)
		for wait := followBackoffMin; ctx.Err() == nil; wait = min(2*wait, r.s.cfg.RegistrationTTL) {
			call, cancel := context.WithTimeout(ctx, r.s.cfg.RegistrationTTL)
			err := r.enter(call, false)
			cancel()
			r.seen(true, err)
			if err == nil {
				r.s.cfg.Logger.Warn("registration had lost its lease and has a new one", "entry", r.entry.Key)
				break
			}
			if ctx.Err() == nil {
				r.s.cfg.Logger.Warn("registration has lost its lease", "entry", r.entry.Key, "error", err, "again_in", wait)
			}
			backoff.Sleep(ctx, backoff.About(wait))
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// keep returns when the lease is lost. It looks at the entry once in a lease's time.
func (r *registration) keep(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alive, err := r.s.client.KeepAlive(ctx, r.lease)
	if err != nil {
		return
	}
	look := time.NewTicker(r.s.cfg.RegistrationTTL)
	defer look.Stop()
	for {
		select {
		case _, ok := <-alive:
			if !ok {
				return
			}
		case <-look.C:
			call, cancel := context.WithTimeout(ctx, r.s.cfg.RegistrationTTL)
			wrong, err := r.mend(call)
			cancel()
			if ctx.Err() != nil {
				return
			}
			r.seen(wrong != "", err)
			switch {
			case err != nil:
				r.s.cfg.Logger.Warn("registration cannot be relied on", "entry", r.entry.Key, "found", wrong, "error", err)
			case wrong != "":
				r.s.cfg.Logger.Error("registration was written anew", "entry", r.entry.Key, "found", wrong)
			}
		}
	}
}

// mend compares the entry with what was written, and writes it anew under its lease if it
// is another, of which wrong tells.
func (r *registration) mend(ctx context.Context) (wrong string, err error) {
	wrong, rev, err := r.look(ctx)
	if err == nil && wrong != "" {
		err = r.put(ctx, r.lease, clientv3.Compare(clientv3.ModRevision(r.entry.Key), "=", rev))
	}
	return wrong, err
}

// look reads the entry. wrong is empty if it is what was written; the error is a conflict
// if it is another process's.
func (r *registration) look(ctx context.Context) (wrong string, rev int64, err error) {
	resp, err := r.s.client.Get(ctx, r.entry.Key)
	if err != nil {
		return "", 0, r.s.explain(ctx, err)
	}
	if len(resp.Kvs) == 0 {
		return "nothing", 0, nil
	}
	kv := resp.Kvs[0]
	_, corrupt := r.s.layout.DecodeCandidate(record.KV{Key: r.entry.Key, Value: kv.Value})
	own := clientv3.LeaseID(kv.Lease) == r.lease
	switch {
	case corrupt != nil:
		return corrupt.Error(), kv.ModRevision, nil
	case !own:
		return "", 0, fmt.Errorf("%w: another process has registered as %s", store.ErrConflict, r.entry.Key)
	case string(kv.Value) != string(r.entry.Value):
		return "another address or zone", kv.ModRevision, nil
	}
	return "", kv.ModRevision, nil
}

// enter gets a lease and puts the entry under it. It takes the place of any
// other entry of the same id if force is set, else of none that another process keeps.
func (r *registration) enter(ctx context.Context, force bool) error {
	lease, err := r.s.client.Grant(ctx, int64(r.s.cfg.RegistrationTTL/time.Second))
	if err != nil {
		return r.s.explain(ctx, err)
	}
	var unless []clientv3.Cmp
	if !force {
		var rev int64
		_, rev, err = r.look(ctx)
		unless = append(unless, clientv3.Compare(clientv3.ModRevision(r.entry.Key), "=", rev))
	}
	if err == nil {
		err = r.put(ctx, lease.ID, unless...)
	}
	if err != nil {
		r.revoke(lease.ID)
		return err
	}
	r.lease = lease.ID
	return nil
}

// put writes the entry under a lease, on conditions.
func (r *registration) put(ctx context.Context, lease clientv3.LeaseID, unless ...clientv3.Cmp) error {
	resp, err := r.s.commit(ctx, txn{
		when: append(unless, clientv3.Compare(clientv3.Value(r.s.layout.ID()), "=", r.s.idSeal)),
		do:   []clientv3.Op{clientv3.OpPut(r.entry.Key, string(r.entry.Value), clientv3.WithLease(lease))},
		els:  []clientv3.Op{clientv3.OpGet(r.s.layout.ID())},
	})
	if err != nil || resp.Succeeded {
		return err
	}
	if err := r.s.sameIdentity(resp, 0); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s has changed meanwhile", store.ErrConflict, r.entry.Key)
}

// revoke ends a lease, and with it the entry unless another's has replaced it.
func (r *registration) revoke(lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
	defer cancel()
	if _, err := r.s.client.Revoke(ctx, lease); err != nil && codeOf(err) != codes.NotFound {
		r.s.cfg.Logger.Info("the lease is left to run out", "entry", r.entry.Key, "error", err)
	}
}

// Candidates implements store.Registry. The revision is etcd's.
func (s *Store) Candidates(ctx context.Context) (store.CandidateWatcher, error) {
	w := &candidateWatcher{s: s}
	var err error
	if w.follower, err = s.follow(ctx, s.layout.Assigners(), w); err != nil {
		return nil, err
	}
	return w, nil
}

// roll is which assigners are registered.
type roll struct {
	candidates []store.Candidate
	rev        int64
}

// candidateWatcher is a sink for the registered assigners.
type candidateWatcher struct {
	s        *Store
	latest   changes.Latest[roll]
	follower *follower
	entries  map[string]store.Candidate // by key; nil before the first reset
	rev      int64
}

func (w *candidateWatcher) reset(rev int64, all []update) {
	before := w.entries
	w.entries = make(map[string]store.Candidate)
	w.take(all)
	if before == nil || !maps.Equal(before, w.entries) {
		w.publish(rev)
	}
}

func (w *candidateWatcher) apply(rev int64, changes []update) {
	before := maps.Clone(w.entries)
	w.take(changes)
	if !maps.Equal(before, w.entries) {
		w.publish(rev)
	}
}

func (w *candidateWatcher) take(updates []update) {
	for _, u := range updates {
		delete(w.entries, u.Key)
		if u.gone {
			continue
		}
		c, err := w.s.layout.DecodeCandidate(u.KV)
		if err != nil {
			w.s.cfg.Logger.Error("registered assigner is left out", "error", err)
			continue
		}
		w.entries[u.Key] = c
	}
}

func (w *candidateWatcher) publish(rev int64) {
	w.rev = max(w.rev, rev)
	w.latest.Set(roll{slices.SortedFunc(maps.Values(w.entries), func(a, b store.Candidate) int { return strings.Compare(a.ID, b.ID) }), w.rev})
}

func (w *candidateWatcher) end() { w.latest.End(store.ErrClosed) }

// Next implements store.CandidateWatcher.
func (w *candidateWatcher) Next(ctx context.Context) ([]store.Candidate, int64, error) {
	r, err := w.latest.Next(ctx)
	return r.candidates, r.rev, err
}

// Close implements store.CandidateWatcher.
func (w *candidateWatcher) Close() error {
	w.follower.close()
	return nil
}
