package etcdstore

import (
	"context"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/changes"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// Watch implements store.Store: one etcd watch, whatever the number of jobs.
func (s *Store) Watch(ctx context.Context) (store.Watcher, error) {
	w := &watcher{layout: &s.layout}
	var err error
	if w.follower, err = s.follow(ctx, s.layout.Jobs(), w); err != nil {
		return nil, err
	}
	return w, nil
}

// watcher is a view of configs, heads and controls.
type watcher struct {
	changes.Names
	layout   *record.Layout
	follower *follower
	seen     map[string]revisions
	rev      int64
}

// revisions of a job's records, 0 for one that is not there.
type revisions [record.PartControls + 1]int64

func (w *watcher) reset(rev int64, all []update) {
	before := w.seen
	if rev < w.rev { // the store has gone back: equal revisions say nothing
		for job := range before {
			before[job] = revisions{-1}
		}
	}
	w.rev = rev
	w.seen = make(map[string]revisions)
	for _, u := range all {
		if job, part, ok := w.layout.JobOf(u.Key); ok {
			r := w.seen[job]
			r[part] = u.rev
			w.seen[job] = r
		}
	}
	for job, r := range w.seen {
		if before[job] != r {
			w.Add(job)
		}
	}
	for job := range before {
		if w.seen[job] == (revisions{}) {
			w.Add(job)
		}
	}
}

func (w *watcher) apply(rev int64, changes []update) {
	w.rev = rev
	for _, u := range changes {
		job, part, ok := w.layout.JobOf(u.Key)
		if !ok {
			continue
		}
		r := w.seen[job]
		if u.gone {
			u.rev = 0
		}
		if r[part] = u.rev; r == (revisions{}) {
			delete(w.seen, job)
		} else {
			w.seen[job] = r
		}
		w.Add(job)
	}
}

func (w *watcher) end() { w.End(store.ErrClosed) }

// Close implements store.Watcher.
func (w *watcher) Close() error {
	w.follower.close()
	return nil
}
