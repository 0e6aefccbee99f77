package etcdstore

import (
	"context"
	"fmt"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Names implements store.NameKeeper.
func (s *Store) Names(ctx context.Context, job string) (store.Names, error) {
	ctx, done, err := s.beginFor(ctx, job)
	if err != nil {
		return store.Names{}, err
	}
	defer done()
	n, _, err := loadNames(ctx, s, job)
	return n, err
}

// loadNames returns the names and the record's mod revision, 0 if there is none.
func loadNames(ctx context.Context, s *Store, job string) (n store.Names, rev int64, err error) {
	resp, err := s.view(ctx, clientv3.OpGet(s.layout.Config(job), clientv3.WithKeysOnly()), clientv3.OpGet(record.NamesKey(s.layout, job)), clientv3.OpGet(s.layout.ID()))
	if err != nil {
		return n, 0, err
	}
	if err := s.sameIdentity(resp, 2); err != nil {
		return n, 0, err
	}
	if _, rev := got(resp, 0); rev == 0 {
		return n, 0, fmt.Errorf("job %s: %w", job, store.ErrNotFound)
	}
	value, rev := got(resp, 1)
	if rev != 0 {
		n, err = record.DecodeNames(s.layout, job, value)
	}
	return n, rev, err
}

// PutNames implements store.NameKeeper.
func (s *Store) PutNames(ctx context.Context, job string, next store.Names) error {
	if err := record.CheckNames(next); err != nil {
		return err
	}
	ctx, done, err := s.beginFor(ctx, job)
	if err != nil {
		return err
	}
	defer done()
	l, key := &s.layout, record.NamesKey(s.layout, job)
	// Once more if another has written meanwhile: then it says which version that is.
	for {
		was, rev, err := loadNames(ctx, s, job)
		if err != nil {
			return err
		}
		if was.Version != next.Version-1 {
			return &store.ConflictError{Key: key, Current: was.Version}
		}
		resp, err := s.commit(ctx, txn{
			when: []clientv3.Cmp{
				clientv3.Compare(clientv3.Value(l.ID()), "=", s.idSeal),
				clientv3.Compare(clientv3.CreateRevision(l.Config(job)), ">", 0),
				clientv3.Compare(clientv3.ModRevision(key), "=", rev),
			},
			do: []clientv3.Op{clientv3.OpPut(key, string(record.EncodeNames(s.layout, job, next)))},
		})
		if err != nil || resp.Succeeded {
			return err
		}
	}
}
