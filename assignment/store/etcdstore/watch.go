package etcdstore

import (
	"context"

	"github.com/slicer-project/slicer/assignment"
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

// watcher is a sink for configs, heads and overrides.
type watcher struct {
	changes.Jobs
	layout   *record.Layout
	follower *follower
	seen     map[string]revisions
	rev      int64
}

// revisions of a job's records, 0 for one that is not there, and what they say.
type revisions struct {
	of  [record.PartOverrides + 1]int64
	has store.Change
}

// take takes a record in.
func (w *watcher) take(r *revisions, job string, part record.Part, u update) {
	version := int64(0)
	if u.gone {
		u.rev = 0
	} else {
		version = record.VersionOf(w.layout, job, part, u.Value)
	}
	r.of[part], r.has.Job = u.rev, job
	switch part {
	case record.PartConfig:
		r.has.Version = version
	case record.PartHead:
		r.has.Generation = assignment.Generation(version)
	case record.PartOverrides:
		r.has.Overrides = version
	}
}

func (w *watcher) reset(rev int64, all []update) {
	before := w.seen
	if rev < w.rev { // the store has gone back: equal revisions say nothing
		for job := range before {
			before[job] = revisions{}
		}
	}
	w.rev = rev
	w.seen = make(map[string]revisions)
	for _, u := range all {
		if job, part, ok := w.layout.JobOf(u.Key); ok {
			r := w.seen[job]
			w.take(&r, job, part, u)
			w.seen[job] = r
		}
	}
	for job, r := range w.seen {
		if before[job].of != r.of {
			w.Add(r.has)
		}
	}
	for job := range before {
		if _, there := w.seen[job]; !there {
			w.Add(store.Change{Job: job})
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
		if w.take(&r, job, part, u); r.of == (revisions{}).of {
			delete(w.seen, job)
		} else {
			w.seen[job] = r
		}
		w.Add(r.has)
	}
}

func (w *watcher) end() { w.End(store.ErrClosed) }

// Close implements store.Watcher.
func (w *watcher) Close() error {
	w.follower.close()
	return nil
}
