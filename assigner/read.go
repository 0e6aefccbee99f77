package assigner

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment/store"
)

// readWithin bounds the reading of one job.
const readWithin = 10 * time.Second

// read finds a job and its newest assignment: in the store where it was, failing
// that in all of them. That one of several stores hangs does not hide a job that
// another one has; that there is no such job takes the word of all.
func (a *Assigner) read(ctx context.Context, job string, home *storeWatch) (generate.Loaded, *storeWatch) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	if home != nil {
		if l := home.read(ctx, job); l.Exists || l.Err != nil {
			return l, home
		}
	}
	var failed error
	for x := range askAll(a, func(s *storeWatch) (generate.Loaded, error) { l := s.read(ctx, job); return l, l.Err }) {
		switch {
		case x.err != nil:
			failed = errors.Join(failed, x.failure())
		case x.value.Exists:
			return x.value, x.home
		}
	}
	return generate.Loaded{Err: failed}, nil
}

// answer is what one store says.
type answer[T any] struct {
	home  *storeWatch
	value T
	err   error
}

// failure is its error, with its name.
func (x answer[T]) failure() error { return fmt.Errorf("store %s: %w", x.home.label(), x.err) }

// askAll asks all stores at once, for their answers as they come.
func askAll[T any](a *Assigner, ask func(*storeWatch) (T, error)) iter.Seq[answer[T]] {
	answers := make(chan answer[T], len(a.stores))
	for _, s := range a.stores {
		one := func() {
			v, err := ask(s)
			answers <- answer[T]{s, v, err}
		}
		if len(a.stores) == 1 {
			one()
		} else if !a.goRun(one) {
			answers <- answer[T]{home: s, err: store.ErrClosed}
		}
	}
	return func(yield func(answer[T]) bool) {
		for range a.stores {
			if !yield(<-answers) {
				return
			}
		}
	}
}

func (s *storeWatch) read(ctx context.Context, job string) generate.Loaded {
	j, err := s.backend.GetJob(ctx, job)
	l := generate.Loaded{StoreID: s.backend.ID()} // which a store that is down has none of before it answers
	switch {
	case errors.Is(err, store.ErrNotFound):
		return l
	case err != nil:
		l.Err = err
		return l
	}
	l.Job = j
	l.Assignment, err = s.backend.Read(ctx, job)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		l.Err = err
		return l
	}
	if l.Overrides, err = s.backend.Overrides(ctx, job); err != nil && !errors.Is(err, store.ErrNotFound) {
		l.Err = err
		return l
	}
	if b := l.Overrides.Rollback; b != nil {
		l.Target, l.NoTarget = s.backend.ReadGeneration(ctx, job, b.Generation)
		if l.NoTarget != nil && !errors.Is(l.NoTarget, store.ErrNotFound) && !errors.Is(l.NoTarget, store.ErrCorrupt) {
			l.Err = l.NoTarget // it may be there when asked again
			return l
		}
	}
	l.Exists = true
	return l
}

// names are whose the names of a job's tasks are. A record that is damaged keeps no process from
// being a task: it is as if there were none.
func (s *storeWatch) names(ctx context.Context, job string) (store.Names, error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	n, err := s.backend.Names(ctx, job)
	switch {
	case errors.Is(err, store.ErrCorrupt):
		s.log.Error("names of tasks cannot be read", "job", job, "error", err, "reason", "until slicerctl store repair has been run they are those of the identities that report them first")
		return store.Names{}, nil
	case errors.Is(err, store.ErrNotFound): // the job has gone meanwhile
		return store.Names{}, nil
	}
	return n, err
}

// putNames stores them.
func (r *runner) putNames(x generate.PutNames) error {
	home := r.whose()
	if home == nil {
		return store.ErrNotFound
	}
	ctx, cancel := context.WithTimeout(r.a.ctx, writeWithin)
	defer cancel()
	return home.backend.PutNames(ctx, r.name, x.Names)
}

// penalties are those of tasks that had failed of late when the newest generation was
// decided, and when that was. That they cannot be read is no reason not to decide.
func (s *storeWatch) penalties(ctx context.Context, job string) ([]store.Penalty, time.Time) {
	ctx, cancel := context.WithTimeout(ctx, auditWithin)
	defer cancel()
	all, err := s.backend.History(ctx, job, 1)
	if err != nil && !errors.Is(err, store.ErrCorrupt) {
		s.log.Warn("failures of tasks are forgotten", "job", job, "error", err)
		return nil, time.Time{}
	}
	for _, e := range all {
		if e.Action == "" {
			return e.Penalties, e.When
		}
	}
	return nil, time.Time{}
}
