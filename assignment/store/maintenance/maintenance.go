// Package maintenance looks after a store as a whole: it checks and repairs its
// records, prints them, and makes and restores backups. slicerctl store is its
// command line.
//
// It works on a Medium, which is a store's records as they lie in etcd or in
// Pebble: etcdstore.OpenMedium and pebblestore.OpenMedium. What Check, Dump and Plan
// do is pure: it follows from a Snapshot, which is the whole store in memory.
package maintenance

import (
	"context"
	"errors"
	"sort"
	"time"

	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// Record is a key, without the store's prefix, and its sealed value.
type Record = record.KV

// Snapshot is everything below a store's prefix at one moment.
type Snapshot struct {
	// Revision of etcd; the number of the last batch in Pebble.
	Revision int64
	Records  []Record // in order of key
	// Sessions are the leases that records hang on, by the medium's own ids: those of
	// consistent mode, not of registrations. Empty in Pebble.
	Sessions map[int64]time.Duration
	// Damage is what is wrong below the records, such as a log that was cut off.
	Damage error
}

// Scan implements record.Source.
func (s *Snapshot) Scan(_ context.Context, from, to string) ([]Record, error) {
	at := func(key string) int {
		return sort.Search(len(s.Records), func(i int) bool { return s.Records[i].Key >= key })
	}
	return s.Records[at(from):max(at(from), at(to))], nil
}

// get returns the value of a record, nil if there is none.
func (s *Snapshot) get(key string) []byte {
	if kvs, _ := s.Scan(context.Background(), key, key+"\x00"); len(kvs) > 0 {
		return kvs[0].Value
	}
	return nil
}

// Update is a change of one record.
type Update struct {
	Key string
	// Was is the value that it must have, nil if it must not be there. With Any
	// whatever is there is replaced.
	Was []byte
	Any bool
	// Value to set; nil deletes.
	Value []byte
}

// Replacement is what Medium.Replace puts in place of a store's records.
type Replacement struct {
	// StoreID of the store from then on.
	StoreID uint64
	Records []Record // without the identity's
	// Keep names records that stay as they are: a key, or all below a prefix if it
	// ends with a slash.
	Keep []string
	// Sessions end first, so that none can be renewed any more.
	Sessions map[int64]time.Duration
}

// MaxGroup is how many updates one group may have.
const MaxGroup = 100

// Medium is a store's records as they lie in etcd or Pebble. Keys are without the
// store's prefix. Its methods return the errors of package store and obey ctx.
type Medium interface {
	// Where names it, as store.URL does.
	Where() string
	// Snapshot reads all records at one revision. It calls progress, if that is not
	// nil, with the number of those it has so far.
	Snapshot(ctx context.Context, progress func(records int)) (*Snapshot, error)
	// Apply carries out at most MaxGroup updates together, or none of them: it returns
	// store.ErrConflict when some record is not what it was.
	Apply(ctx context.Context, group []Update) error
	// Replace puts other records in the place of all there are, if nothing but what is
	// kept has changed since the snapshot. In Pebble that is one batch. In etcd it
	// takes several transactions: the first removes the records, and makes the identity
	// one that every process refuses; the last makes it the new one. So no process ever
	// sees a part of it, and one that is broken off is begun again.
	Replace(ctx context.Context, since *Snapshot, r Replacement) error
	// Close releases it.
	Close() error
}

// ErrNotReplaced is matched by errors of Replace after which the store holds what it
// held.
var ErrNotReplaced = errors.New("nothing was replaced")

// Gaps are the ranges of keys, from inclusive and to exclusive, that are not kept. The
// last one's to is empty: it has no end.
func Gaps(keep []string) (gaps [][2]string) {
	kept := append([]string(nil), keep...)
	sort.Strings(kept)
	from := ""
	for _, k := range kept {
		if k > from {
			gaps = append(gaps, [2]string{from, k})
		}
		if from = k + "\x00"; k[len(k)-1] == '/' {
			from = record.After(k)
		}
	}
	return append(gaps, [2]string{from, ""})
}
