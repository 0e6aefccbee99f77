package pebblestore

import (
	"context"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// Names implements store.NameKeeper. They are read from disk: that is seldom.
func (s *Store) Names(ctx context.Context, name string) (store.Names, error) {
	return call(ctx, s, func(context.Context) (n store.Names, err error) {
		if _, err = s.find(name); err != nil {
			return n, err
		}
		return storedNames(s, name)
	})
}

func storedNames(s *Store, name string) (n store.Names, err error) {
	key := record.NamesKey(s.layout, name)
	kvs, err := s.scan(key, key+"\x00")
	if err != nil || len(kvs) == 0 {
		return n, err
	}
	return record.DecodeNames(s.layout, name, kvs[0].Value)
}

// PutNames implements store.NameKeeper.
func (s *Store) PutNames(ctx context.Context, name string, next store.Names) error {
	if err := record.CheckNames(next); err != nil {
		return err
	}
	return onJob(ctx, s, name, func(*job) error {
		was, err := storedNames(s, name)
		if err != nil {
			return err
		}
		if was.Version != next.Version-1 {
			return &store.ConflictError{Key: record.NamesKey(s.layout, name), Current: was.Version}
		}
		b := s.db.NewBatch()
		defer b.Close()
		if err := b.Set([]byte(record.NamesKey(s.layout, name)), record.EncodeNames(s.layout, name, next), nil); err != nil {
			return err
		}
		return s.write(b)
	})
}
