package pebblestore

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// Overrides implements store.Journal.
func (s *Store) Overrides(ctx context.Context, name string) (store.Overrides, error) {
	if err := s.ready(ctx); err != nil {
		return store.Overrides{}, err
	}
	j, err := s.find(name)
	if err != nil {
		return store.Overrides{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return j.overrides, j.ordersErr
}

// PutOverrides implements store.Journal.
func (s *Store) PutOverrides(ctx context.Context, name string, next store.Overrides, order store.Entry, keep int) error {
	if err := record.CheckOrder(next, order); err != nil {
		return err
	}
	return onJob(ctx, s, name, func(j *job) error {
		switch {
		case j.ordersErr != nil:
			return j.ordersErr
		case next.Version-1 != j.overrides.Version:
			return &store.ConflictError{Key: s.layout.Overrides(name), Current: j.overrides.Version}
		}
		b := s.db.NewBatch()
		defer b.Close()
		if err := set(b, s.layout.Order(name, next, order, keep)); err != nil {
			return err
		}
		if err := s.write(b); err != nil {
			return err
		}
		s.changed(name, func() { j.overrides, j.ordered = next, true })
		return nil
	})
}

// onJob does what changes a job that exists, one change of the job at a time.
func onJob(ctx context.Context, s *Store, name string, do func(*job) error) error {
	_, err := call(ctx, s, func(ctx context.Context) (none struct{}, err error) {
		j, err := s.find(name)
		if err != nil {
			return none, err
		}
		return none, s.locked(ctx, j, func() error {
			if !j.exists() { // any more
				return noJob(name)
			}
			return do(j)
		})
	})
	return err
}

// set fills a batch.
func set(b *pebble.Batch, p record.Puts) (err error) {
	for _, kv := range p.Records {
		err = errors.Join(err, b.Set([]byte(kv.Key), kv.Value, nil))
	}
	if p.From != p.To {
		err = errors.Join(err, b.DeleteRange([]byte(p.From), []byte(p.To), nil))
	}
	return err
}

// History implements store.Journal.
func (s *Store) History(ctx context.Context, name string, limit int) ([]store.Entry, error) {
	type history struct {
		entries []store.Entry
		corrupt error
	}
	h, err := call(ctx, s, func(ctx context.Context) (h history, err error) {
		_, gone := s.find(name)
		if gone != nil && assignment.ValidateJobName(name) != nil {
			return h, gone
		}
		h.entries, h.corrupt = s.layout.ReadHistory(ctx, s, name, limit)
		if len(h.entries) == 0 && h.corrupt == nil {
			err = gone
		}
		return h, err
	})
	return h.entries, errors.Join(err, h.corrupt)
}

// Newest implements record.Newest.
func (s *Store) Newest(ctx context.Context, prefix string, limit int) (kvs []record.KV, err error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	return s.walk(prefix, record.After(prefix), (*pebble.Iterator).Last, (*pebble.Iterator).Prev, limit)
}
