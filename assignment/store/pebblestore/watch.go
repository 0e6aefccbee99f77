package pebblestore

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/changes"
)

// watcher is told by every write.
type watcher struct {
	changes.Jobs
	s *Store
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context) (store.Watcher, error) {
	w := &watcher{s: s}
	err := s.attach(ctx, func() {
		for name, j := range s.jobs {
			if j.exists() {
				w.Add(j.changeLocked(name))
			}
		}
		s.watchers[w] = struct{}{}
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// attach runs f under the lock if the store works.
func (s *Store) attach(ctx context.Context, f func()) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	f()
	return nil
}

// Close implements store.Watcher.
func (w *watcher) Close() error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	delete(w.s.watchers, w)
	w.End(store.ErrClosed)
	return nil
}

// registry is what is registered in this process. Its methods need Store.mu.
type registry struct {
	rev      int64
	entries  map[string]*registration // by id
	watchers map[*candidateWatcher]struct{}
}

// start makes revisions go on where those of the process before ended.
func (r *registry) start(opened uint64) {
	r.rev = int64(opened&(1<<31-1)) << 32
	r.entries = make(map[string]*registration)
	r.watchers = make(map[*candidateWatcher]struct{})
}

func (r *registry) roll() roll {
	candidates := make([]store.Candidate, 0, len(r.entries))
	for _, e := range r.entries {
		candidates = append(candidates, e.candidate)
	}
	slices.SortFunc(candidates, func(a, b store.Candidate) int { return strings.Compare(a.ID, b.ID) })
	return roll{candidates, r.rev}
}

// set puts an entry, or takes it away if e is nil.
func (r *registry) set(id string, e *registration) {
	before := r.entries[id]
	if e != nil {
		r.entries[id] = e
	} else {
		delete(r.entries, id)
	}
	if before != nil && e != nil && before.candidate == e.candidate {
		return
	}
	r.rev++
	for w := range r.watchers {
		w.latest.Set(r.roll())
	}
}

func (r *registry) close() {
	for w := range maps.Keys(r.watchers) {
		w.latest.End(store.ErrClosed)
	}
	clear(r.entries)
}

// registration is one entry.
type registration struct {
	s         *Store
	candidate store.Candidate
}

// Register implements store.Registry.
func (s *Store) Register(ctx context.Context, c store.Candidate) (store.Registration, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := &registration{s, c}
	if err := s.attach(ctx, func() { s.registry.set(c.ID, r) }); err != nil {
		return nil, err
	}
	return r, nil
}

// State implements store.Registration: an entry lives as long as its process.
func (r *registration) State() (int, error) { return 0, r.s.Err() }

// Close implements store.Registration.
func (r *registration) Close() error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.s.registry.entries[r.candidate.ID] == r {
		r.s.registry.set(r.candidate.ID, nil)
	}
	return nil
}

// roll is which assigners are registered.
type roll struct {
	candidates []store.Candidate
	rev        int64
}

type candidateWatcher struct {
	s      *Store
	latest changes.Latest[roll]
}

// Candidates implements store.Registry. Revisions go on from one process to the next.
func (s *Store) Candidates(ctx context.Context) (store.CandidateWatcher, error) {
	w := &candidateWatcher{s: s}
	err := s.attach(ctx, func() {
		w.latest.Set(s.registry.roll())
		s.registry.watchers[w] = struct{}{}
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Next implements store.CandidateWatcher.
func (w *candidateWatcher) Next(ctx context.Context) ([]store.Candidate, int64, error) {
	r, err := w.latest.Next(ctx)
	return r.candidates, r.rev, err
}

// Close implements store.CandidateWatcher.
func (w *candidateWatcher) Close() error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	delete(w.s.registry.watchers, w)
	w.latest.End(store.ErrClosed)
	return nil
}
