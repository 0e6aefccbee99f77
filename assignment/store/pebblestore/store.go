package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// Store is a store.Backend on Pebble.
type Store struct {
	cfg    Config
	dir    string
	layout record.Layout
	db     *pebble.DB

	committing sync.Mutex // one batch after the other
	id         record.Identity
	witness    *witness

	running sync.WaitGroup // calls under way
	failed  chan struct{}
	stopped chan struct{} // closed when Pebble stands still, perhaps with its locks held

	mu       sync.RWMutex
	closed   bool
	err      error           // why failed is closed
	jobs     map[string]*job // that there are or were
	watchers map[*watcher]struct{}
	registry registry
}

var _ store.Backend = (*Store)(nil)

// job is what is known of one job. Its fields are what has been acknowledged: readers,
// which need only Store.mu, never see what is not on disk.
type job struct {
	lock chan struct{} // holds one during a write, or a read from disk

	config    *store.Job // nil if there is none, or it is corrupt
	configErr error      // why a config cannot be read
	gone      *record.Tombstone
	goneErr   error
	overrides store.Overrides
	ordered   bool  // there is a record of them
	ordersErr error // why it cannot be read
	head      *record.Head
	headErr   error
	newest    *assignment.Assignment // nil until it is first read
}

func (j *job) exists() bool { return j.config != nil || j.configErr != nil }

// ID implements store.Store.
func (s *Store) ID() uint64 { return s.layout.StoreID }

// Failed implements store.Backend. It is closed when the disk is full or broken.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Err implements store.Backend.
func (s *Store) Err() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.err
}

// fail ends the store's work for good. Pebble may call it with its locks held.
func (s *Store) fail(why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = fmt.Errorf("%w: directory %s: %w", store.ErrUnavailable, s.dir, why)
		close(s.failed)
		s.cfg.Logger.Error("store failed", "dir", s.dir, "error", why.Error())
	}
	return s.err
}

// stop is for errors after which Pebble must not be touched any more.
func (s *Store) stop(why error) error {
	err := s.fail(why)
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stopped:
	default:
		close(s.stopped)
	}
	return err
}

// Close implements store.Store. It waits for calls under way and unlocks the
// directory. After some failures only the process's end does: it returns Err then.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	for w := range s.watchers {
		w.End(store.ErrClosed)
	}
	s.registry.close()
	s.mu.Unlock()
	if !first {
		return nil
	}
	result := make(chan error, 1)
	go func() {
		s.running.Wait()
		result <- s.shut()
	}()
	select {
	case err := <-result:
		if err != nil {
			return fmt.Errorf("%w: close store directory %s: %w", store.ErrUnavailable, s.dir, err)
		}
	case <-s.stopped:
	}
	return s.Err()
}

// ready says what keeps a call from being made.
func (s *Store) ready(ctx context.Context) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case ctx.Err() != nil:
		return ended(ctx)
	case s.closed:
		return store.ErrClosed
	}
	return s.err
}

// call runs f beside the caller, so that a disk that hangs holds up no caller longer than
// ctx says. f goes on when ctx has ended: its outcome is unknown then.
func call[T any](ctx context.Context, s *Store, f func(ctx context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var none T
	if err := s.ready(ctx); err != nil {
		return none, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cfg.Timeout)
		defer cancel()
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return none, store.ErrClosed
	}
	result := make(chan outcome, 1)
	s.running.Go(func() {
		var o outcome
		defer func() {
			if r := recover(); r != nil { // Pebble does so when it cannot go on
				o.err = s.stop(fmt.Errorf("%v", r))
			}
			result <- o
		}()
		o.value, o.err = f(ctx)
	})
	s.mu.Unlock()
	select {
	case o := <-result:
		return o.value, o.err
	case <-s.failed:
		return none, s.Err()
	case <-ctx.Done():
		return none, ended(ctx)
	}
}

// ended is the error of a call whose ctx has ended.
func ended(ctx context.Context) error {
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: the disk did not answer in the time given: %w", store.ErrUnavailable, ctx.Err())
}

// locked runs f while nothing else writes the job. It is called inside call.
func (s *Store) locked(ctx context.Context, j *job, f func() error) error {
	select {
	case j.lock <- struct{}{}:
	case <-s.failed:
		return s.Err()
	case <-ctx.Done():
		return ended(ctx)
	}
	defer func() { <-j.lock }()
	return f()
}

// write writes a batch, numbered, and returns when it and the witness are on disk.
func (s *Store) write(b *pebble.Batch) error {
	s.committing.Lock()
	defer s.committing.Unlock()
	s.id.Writes++
	err := b.Set([]byte(s.layout.ID()), s.layout.EncodeIdentity(s.id), nil)
	if err == nil {
		err = b.Commit(pebble.Sync)
	}
	if err == nil {
		err = s.witness.write(s.id.Writes)
	}
	if err != nil {
		return s.fail(err)
	}
	return nil
}

// Check implements store.Store. A disk that cannot be written fails the store for good
// with the first write, so that reading shows all there is to know.
func (s *Store) Check(ctx context.Context, _ bool) error {
	_, err := call(ctx, s, func(ctx context.Context) ([]record.KV, error) { return s.scan(s.layout.ID(), s.layout.ID()+"\x00") })
	return err
}

// Scan implements record.Source.
func (s *Store) Scan(ctx context.Context, from, to string) ([]record.KV, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	return s.scan(from, to)
}

func (s *Store) scan(from, to string) ([]record.KV, error) {
	return s.walk(from, to, (*pebble.Iterator).First, (*pebble.Iterator).Next, math.MaxInt)
}

// walk reads the keys from, inclusive, to, exclusive, in the order that begin and
// step give, up to a limit.
func (s *Store) walk(from, to string, begin, step func(*pebble.Iterator) bool, limit int) (kvs []record.KV, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte(from), UpperBound: []byte(to)})
	if err != nil {
		return nil, s.unreadable(from, err)
	}
	for ok := begin(it); ok && len(kvs) < limit; ok = step(it) {
		value, err := it.ValueAndErr()
		if err != nil {
			_ = it.Close()
			return nil, s.unreadable(string(it.Key()), err)
		}
		kvs = append(kvs, record.KV{Key: string(it.Key()), Value: append([]byte{}, value...)})
	}
	if err := it.Close(); err != nil {
		return nil, s.unreadable(from, err)
	}
	return kvs, nil
}

// unreadable maps an error of a read onto those of the contract.
func (s *Store) unreadable(key string, err error) error {
	if pebble.IsCorruptionError(err) {
		return record.Corrupt(key, "%w", err)
	}
	return fmt.Errorf("%w: directory %s: key %s: %w", store.ErrUnavailable, s.dir, key, err)
}
