package pebblestore

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"go.uber.org/goleak"
)

func verify(m *testing.M) {
	waittest.SideBySide()
	goleak.VerifyTestMain(m)
}

// roomy waits for disks that others keep busy.
var roomy = Config{Timeout: time.Minute}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Fixture {
		dir := t.TempDir()
		return storetest.Fixture{
			Open: func() (store.Backend, error) { return Open(dir, roomy) },
			Keep: 64,
			Raw:  func() (storetest.Raw, error) { return newRaw(dir, roomy) },
		}
	})
}

// raw is a store's records in Pebble.
type raw struct{ db *pebble.DB }

func newRaw(dir string, cfg Config) (*raw, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	db, err := pebble.Open(dir, &pebble.Options{FS: cfg.fs, FormatMajorVersion: pebble.FormatNewest, Logger: &logger{&Store{cfg: cfg}}})
	return &raw{db}, err
}

func (r *raw) Keys() (keys []string, err error) {
	it, err := r.db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		keys = append(keys, string(it.Key()))
	}
	return keys, it.Close()
}

func (r *raw) Get(key string) ([]byte, error) {
	v, closer, err := r.db.Get([]byte(key))
	if err != nil {
		return nil, err
	}
	return append([]byte{}, v...), closer.Close()
}

func (r *raw) Put(key string, value []byte) error {
	return r.db.Set([]byte(key), value, pebble.Sync)
}

func (r *raw) Delete(key string) error { return r.db.Delete([]byte(key), pebble.Sync) }

func (r *raw) Close() error { return r.db.Close() }
