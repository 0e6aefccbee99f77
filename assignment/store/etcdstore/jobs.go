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
	var kvs []record.KV
	err = atOneRevision(func() (err error) {
		kvs, err = moment{s: s}.Scan(ctx, s.layout.Jobs(), record.After(s.layout.Jobs()))
		return err
	})
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
	return s.putJob(ctx, c, expect, nil)
}

// PutJobBy implements store.Journal.
func (s *Store) PutJobBy(ctx context.Context, c assignment.JobConfig, expect int64, by store.Entry) (store.Job, error) {
	if err := record.CheckNote(by); err != nil {
		return store.Job{}, err
	}
	return s.putJob(ctx, c, expect, &by)
}

func (s *Store) putJob(ctx context.Context, c assignment.JobConfig, expect int64, by *store.Entry) (store.Job, error) {
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
		job, put, err := s.putJobOnce(ctx, c, expect, by)
		if put || err != nil {
			return job, err
		}
	}
}

// putJobOnce returns false when another has written meanwhile.
func (s *Store) putJobOnce(ctx context.Context, c assignment.JobConfig, expect int64, by *store.Entry) (job store.Job, put bool, err error) {
	l := &s.layout
	key, gone, overrides := l.Config(c.Name), l.Gone(c.Name), l.Overrides(c.Name)
	resp, err := s.view(ctx, clientv3.OpGet(key), clientv3.OpGet(gone), clientv3.OpGet(overrides))
	if err != nil {
		return job, false, err
	}
	var version, stored int64
	creator := by.Creator()
	var under knownOverrides
	value, goneRev := got(resp, 1)
	if goneRev != 0 {
		t, err := l.DecodeTombstone(c.Name, value)
		if err != nil {
			return job, false, err
		}
		version, under.c.Version = t.Version, t.Overrides
	}
	value, keyRev := got(resp, 0)
	if keyRev != 0 {
		was, err := l.DecodeJob(c.Name, value)
		if err != nil {
			return job, false, err
		}
		version, stored, creator = was.Version, was.Version, was.CreatedBy
	}
	if expect > 0 && expect != stored || expect < 0 && stored != 0 {
		return job, false, &store.ConflictError{Key: key, Current: stored}
	}
	job = store.Job{Config: c, Version: version + 1, CreatedBy: creator}
	t := txn{
		when: []clientv3.Cmp{
			clientv3.Compare(clientv3.Value(l.ID()), "=", s.idSeal),
			clientv3.Compare(clientv3.ModRevision(key), "=", keyRev),
			clientv3.Compare(clientv3.ModRevision(gone), "=", goneRev),
		},
		do:  []clientv3.Op{clientv3.OpPut(key, string(l.EncodeJob(job)))},
		els: []clientv3.Op{clientv3.OpGet(l.ID())},
	}
	if keyRev == 0 { // a process of an older version may have left them when it deleted the job
		t.do = append(t.do, clientv3.OpDelete(record.NamesKey(*l, c.Name)))
	}
	if by != nil {
		if value, under.rev = got(resp, 2); under.rev != 0 {
			if under.c, err = l.DecodeOverrides(c.Name, value); err != nil {
				return job, false, err
			}
		}
		t.when = append(t.when, clientv3.Compare(clientv3.ModRevision(overrides), "=", under.rev))
		next, puts := l.Note(job, under.c, *by)
		t.do, under.c = append(t.do, ops(puts)...), next
	}
	if resp, err = s.commit(ctx, t); err != nil {
		return job, false, err
	}
	if !resp.Succeeded {
		return job, false, s.sameIdentity(resp, 0)
	}
	if by != nil {
		s.learnOverrides(c.Name, knownOverrides{under.c, resp.Header.Revision})
	}
	return job, true, nil
}

// DeleteJob implements store.Store. Attempts under way end with it.
func (s *Store) DeleteJob(ctx context.Context, name string) error { return s.deleteJob(ctx, name, nil) }

// DeleteJobBy implements store.Journal.
func (s *Store) DeleteJobBy(ctx context.Context, name string, by store.Entry) error {
	if err := record.CheckNote(by); err != nil {
		return err
	}
	return s.deleteJob(ctx, name, &by)
}

func (s *Store) deleteJob(ctx context.Context, name string, by *store.Entry) error {
	ctx, done, err := s.beginFor(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	for {
		deleted, err := s.deleteJobOnce(ctx, name, by)
		if err != nil {
			return err
		}
		if deleted {
			s.forget(name)
			return nil
		}
	}
}

// deleteJobOnce returns false when another has written meanwhile.
func (s *Store) deleteJobOnce(ctx context.Context, name string, by *store.Entry) (bool, error) {
	l := &s.layout
	generations, chunks, attempts := l.Generations(name), l.Chunks(name), l.Attempts(name)
	keys := [...]string{l.Config(name), l.Head(name), l.Gone(name), l.Overrides(name)}
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
	_, remains := l.Bury(name, there[0].Value, there[2], there[3], last, by)
	t.do = append(ops(remains), clientv3.OpDelete(keys[0]), clientv3.OpDelete(keys[1]), clientv3.OpDelete(keys[3]), clientv3.OpDelete(record.NamesKey(*l, name)))
	for _, prefix := range []string{generations, chunks, attempts} {
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
