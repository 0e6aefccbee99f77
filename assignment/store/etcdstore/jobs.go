package etcdstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// GetJob implements store.Store.
func (s *Store) GetJob(ctx context.Context, name string) (store.Job, error) {
	ctx, done, err := s.beginFor(ctx, name)
	if err != nil {
		return store.Job{}, err
	}
	defer done()
	resp, err := s.client.Get(ctx, s.layout.Config(name))
	if err != nil {
		return store.Job{}, s.explain(ctx, err)
	}
	if len(resp.Kvs) == 0 {
		return store.Job{}, fmt.Errorf("job %s: %w", name, store.ErrNotFound)
	}
	return s.layout.DecodeJob(name, resp.Kvs[0].Value)
}

// ListJobs implements store.Store.
func (s *Store) ListJobs(ctx context.Context) ([]store.Job, error) {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	kvs, err := moment{s: s}.Scan(ctx, s.layout.Jobs(), record.After(s.layout.Jobs()))
	if err != nil {
		return nil, err
	}
	var jobs []store.Job
	var corrupt []error
	for _, kv := range kvs {
		name, part, ok := s.layout.JobOf(kv.Key)
		if !ok || part != record.PartConfig {
			continue
		}
		job, err := s.layout.DecodeJob(name, kv.Value)
		if err != nil {
			corrupt = append(corrupt, err)
			continue
		}
		jobs = append(jobs, job)
	}
	return jobs, errors.Join(corrupt...)
}

// PutJob implements store.Store.
func (s *Store) PutJob(ctx context.Context, c assignment.JobConfig, expect int64) (store.Job, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return store.Job{}, err
	}
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return store.Job{}, err
	}
	defer done()
	for {
		job, err := s.putJobOnce(ctx, c, expect)
		// Whoever does not care what is stored does not care that it changes either.
		if expect != store.AnyVersion || !errors.Is(err, store.ErrConflict) {
			return job, err
		}
	}
}

func (s *Store) putJobOnce(ctx context.Context, c assignment.JobConfig, expect int64) (store.Job, error) {
	key, gone := s.layout.Config(c.Name), s.layout.Gone(c.Name)
	resp, err := s.view(ctx, clientv3.OpGet(key), clientv3.OpGet(gone))
	if err != nil {
		return store.Job{}, err
	}
	var keyRev, goneRev, version, stored int64
	var value []byte
	if value, goneRev = got(resp, 1); goneRev != 0 {
		t, err := s.layout.DecodeTombstone(c.Name, value)
		if err != nil {
			return store.Job{}, err
		}
		version = t.Version
	}
	if value, keyRev = got(resp, 0); keyRev != 0 {
		job, err := s.layout.DecodeJob(c.Name, value)
		if err != nil {
			return store.Job{}, err
		}
		version, stored = job.Version, job.Version
	}
	if expect > 0 && expect != stored || expect < 0 && stored != 0 {
		return store.Job{}, &store.ConflictError{Key: key, Current: stored}
	}
	job := store.Job{Config: c, Version: version + 1}
	resp, err = s.commit(ctx, txn{
		when: []clientv3.Cmp{
			clientv3.Compare(clientv3.Value(s.layout.ID()), "=", s.idSeal),
			clientv3.Compare(clientv3.ModRevision(key), "=", keyRev),
			clientv3.Compare(clientv3.ModRevision(gone), "=", goneRev),
		},
		do:  []clientv3.Op{clientv3.OpPut(key, string(s.layout.EncodeJob(job)))},
		els: []clientv3.Op{clientv3.OpGet(s.layout.ID()), clientv3.OpGet(key)},
	})
	if err != nil {
		return store.Job{}, err
	}
	if resp.Succeeded {
		return job, nil
	}
	if err := s.sameIdentity(resp, 0); err != nil {
		return store.Job{}, err
	}
	stored = 0
	if value, rev := got(resp, 1); rev != 0 {
		job, err := s.layout.DecodeJob(c.Name, value)
		if err != nil {
			return store.Job{}, err
		}
		stored = job.Version
	}
	return store.Job{}, &store.ConflictError{Key: key, Current: stored}
}

// DeleteJob implements store.Store. Attempts under way end with it.
func (s *Store) DeleteJob(ctx context.Context, name string) error {
	ctx, done, err := s.beginFor(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	for {
		deleted, err := s.deleteJobOnce(ctx, name)
		if err != nil {
			return err
		}
		if deleted {
			s.forget(name)
			return nil
		}
	}
}

// deleteJobOnce returns false when somebody else has written meanwhile.
func (s *Store) deleteJobOnce(ctx context.Context, name string) (bool, error) {
	l := &s.layout
	generations, chunks, attempts := l.Generations(name), l.Chunks(name), l.Attempts(name)
	keys := [...]string{l.Config(name), l.Head(name), l.Gone(name), l.Controls(name)}
	resp, err := s.view(ctx,
		clientv3.OpGet(keys[0]), clientv3.OpGet(keys[1], clientv3.WithKeysOnly()), clientv3.OpGet(keys[2]), clientv3.OpGet(keys[3]),
		// The newest generation, from its key: the head may be corrupt.
		clientv3.OpGet(generations, clientv3.WithRange(record.After(generations)), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(1)))
	if err != nil {
		return false, err
	}
	t := txn{when: []clientv3.Cmp{clientv3.Compare(clientv3.Value(l.ID()), "=", s.idSeal)}, els: []clientv3.Op{clientv3.OpGet(l.ID())}}
	var there [len(keys)]*record.KV
	for i, key := range keys {
		value, rev := got(resp, i)
		if rev != 0 {
			there[i] = &record.KV{Key: key, Value: value}
		}
		if i == 0 && rev == 0 {
			return false, fmt.Errorf("job %s: %w", name, store.ErrNotFound)
		}
		t.when = append(t.when, clientv3.Compare(clientv3.ModRevision(key), "=", rev))
	}
	var last assignment.Generation
	if kvs := resp.Responses[len(keys)].GetResponseRange().Kvs; len(kvs) > 0 {
		last, _ = l.GenerationOf(name, string(kvs[0].Key))
	}
	tombstone := l.EncodeTombstone(name, l.Bury(name, there[0].Value, there[2], there[3], last))
	t.do = []clientv3.Op{clientv3.OpDelete(keys[0]), clientv3.OpDelete(keys[1]), clientv3.OpPut(keys[2], string(tombstone)), clientv3.OpDelete(keys[3])}
	for _, prefix := range []string{generations, chunks, attempts, l.History(name)} {
		t.do = append(t.do, clientv3.OpDelete(prefix, clientv3.WithRange(record.After(prefix))))
	}
	if resp, err = s.commit(ctx, t); err != nil {
		return false, err
	}
	if !resp.Succeeded {
		return false, s.sameIdentity(resp, 0)
	}
	return true, nil
}
