package pebblestore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// leasesAt is where the records of leases are, apart from all others.
const leasesAt = "lease/"

// Leases is where the leases of consistent mode keep their records: what package
// lease/serve calls its storage. They outlive the jobs that they are about.
type Leases struct{ s *Store }

// Leases returns the place for them. It is good until the store is closed.
func (s *Store) Leases() Leases { return Leases{s} }

// Load returns all records. One that is damaged is refused, with its key.
func (l Leases) Load(ctx context.Context) (map[string][]byte, error) {
	return call(ctx, l.s, func(context.Context) (map[string][]byte, error) {
		kvs, err := l.s.scan(leasesAt, record.After(leasesAt))
		if err != nil {
			return nil, err
		}
		out := make(map[string][]byte, len(kvs))
		for _, kv := range kvs {
			if out[kv.Key], err = l.s.layout.Open(kv.Key, kv.Value); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
}

// Put writes records, whose keys begin with "lease/", all or none, and returns
// when they are on disk. An empty value deletes. After an error they may or may
// not be there.
func (l Leases) Put(ctx context.Context, records map[string][]byte) error {
	_, err := call(ctx, l.s, func(context.Context) (none struct{}, err error) {
		b := l.s.db.NewBatch()
		defer b.Close()
		for _, key := range slices.Sorted(maps.Keys(records)) {
			if !strings.HasPrefix(key, leasesAt) {
				return none, fmt.Errorf("lease record %q: keys begin with %s", key, leasesAt)
			}
			if value := records[key]; len(value) > 0 {
				err = b.Set([]byte(key), l.s.layout.Seal(key, value), nil)
			} else {
				err = b.Delete([]byte(key), nil)
			}
			if err != nil {
				return none, err
			}
		}
		return none, l.s.write(b)
	})
	return err
}
