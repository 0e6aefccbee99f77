package etcdstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// knownOverrides are those of a job as they were last read or written here.
type knownOverrides struct {
	c   store.Overrides
	rev int64 // mod revision, 0 if there is no record
}

func (s *Store) learnOverrides(job string, o knownOverrides) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.rev >= s.overrides[job].rev {
		s.overrides[job] = o
	}
}

// overridesOf returns the overrides of a version, or a conflict if others are stored.
func (s *Store) overridesOf(ctx context.Context, job string, version int64) (knownOverrides, error) {
	s.mu.Lock()
	o, known := s.overrides[job]
	s.mu.Unlock()
	if known && o.c.Version == version {
		return o, nil
	}
	o, err := s.loadOverrides(ctx, job)
	if err == nil && o.c.Version != version {
		err = &store.ConflictError{Key: s.layout.Overrides(job), Current: o.c.Version}
	}
	return o, err
}

func (s *Store) loadOverrides(ctx context.Context, job string) (o knownOverrides, err error) {
	resp, err := s.view(ctx, clientv3.OpGet(s.layout.Config(job), clientv3.WithKeysOnly()), clientv3.OpGet(s.layout.Overrides(job)),
		clientv3.OpGet(s.layout.Gone(job)), clientv3.OpGet(s.layout.ID()))
	if err != nil {
		return o, err
	}
	if err := s.sameIdentity(resp, 3); err != nil {
		return o, err
	}
	if _, rev := got(resp, 0); rev == 0 {
		return o, fmt.Errorf("job %s: %w", job, store.ErrNotFound)
	}
	var value []byte
	if value, o.rev = got(resp, 1); o.rev != 0 {
		o.c, err = s.layout.DecodeOverrides(job, value)
	} else if gone, rev := got(resp, 2); rev != 0 {
		var t record.Tombstone
		t, err = s.layout.DecodeTombstone(job, gone)
		o.c.Version = t.Overrides
	}
	if err != nil {
		return knownOverrides{}, err
	}
	s.learnOverrides(job, o)
	return o, nil
}

// Overrides implements store.Journal.
func (s *Store) Overrides(ctx context.Context, job string) (store.Overrides, error) {
	ctx, done, err := s.beginFor(ctx, job)
	if err != nil {
		return store.Overrides{}, err
	}
	defer done()
	o, err := s.loadOverrides(ctx, job)
	return o.c, err
}

// PutOverrides implements store.Journal.
func (s *Store) PutOverrides(ctx context.Context, job string, next store.Overrides, order store.Entry, keep int) error {
	if err := record.CheckOrder(next, order); err != nil {
		return err
	}
	ctx, done, err := s.beginFor(ctx, job)
	if err != nil {
		return err
	}
	defer done()
	o, err := s.overridesOf(ctx, job, next.Version-1)
	if err != nil {
		return err
	}
	l := &s.layout
	t := txn{
		when: []clientv3.Cmp{
			clientv3.Compare(clientv3.Value(l.ID()), "=", s.idSeal),
			clientv3.Compare(clientv3.CreateRevision(l.Config(job)), ">", 0),
			clientv3.Compare(clientv3.ModRevision(l.Overrides(job)), "=", o.rev),
		},
		do:  ops(l.Order(job, next, order, keep)),
		els: []clientv3.Op{clientv3.OpGet(l.ID()), clientv3.OpGet(l.Config(job), clientv3.WithKeysOnly())},
	}
	resp, err := s.commit(ctx, t)
	if err != nil {
		return err
	}
	if resp.Succeeded {
		s.learnOverrides(job, knownOverrides{next, resp.Header.Revision})
		return nil
	}
	if err := s.sameIdentity(resp, 0); err != nil {
		return err
	}
	if _, rev := got(resp, 1); rev == 0 {
		return fmt.Errorf("job %s: %w", job, store.ErrNotFound)
	}
	if o, err = s.loadOverrides(ctx, job); err != nil {
		return err
	}
	return &store.ConflictError{Key: l.Overrides(job), Current: o.c.Version}
}

// ops are the operations of puts.
func ops(p record.Puts) (all []clientv3.Op) {
	for _, kv := range p.Records {
		all = append(all, clientv3.OpPut(kv.Key, string(kv.Value)))
	}
	if p.From != p.To {
		all = append(all, clientv3.OpDelete(p.From, clientv3.WithRange(p.To)))
	}
	return all
}

// History implements store.Journal.
func (s *Store) History(ctx context.Context, job string, limit int) ([]store.Entry, error) {
	ctx, done, err := s.beginFor(ctx, job)
	if err != nil {
		return nil, err
	}
	defer done()
	_, gone := s.loadOverrides(ctx, job)
	if gone != nil && !errors.Is(gone, store.ErrCorrupt) && !errors.Is(gone, store.ErrNotFound) {
		return nil, gone
	}
	all, err := s.layout.ReadHistory(ctx, s, job, limit)
	if len(all) == 0 && err == nil && errors.Is(gone, store.ErrNotFound) {
		err = gone
	}
	return all, err
}

// historyPage is how many entries one request gets: 2 MiB at most.
const historyPage = 64

// Newest implements record.Newest.
func (s *Store) Newest(ctx context.Context, prefix string, limit int) (kvs []record.KV, err error) {
	for to := record.After(prefix); len(kvs) < limit; {
		resp, err := s.client.Get(ctx, prefix, clientv3.WithRange(to), clientv3.WithLimit(int64(min(limit-len(kvs), historyPage))),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
		if err != nil {
			return nil, s.explain(ctx, err)
		}
		for _, kv := range resp.Kvs {
			to = string(kv.Key)
			kvs = append(kvs, record.KV{Key: to, Value: kv.Value})
		}
		if !resp.More || len(resp.Kvs) == 0 {
			break
		}
	}
	return kvs, nil
}
