package pebblestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

func noGeneration(job string, g assignment.Generation) error {
	return fmt.Errorf("generation %d of job %s: %w", g, job, store.ErrNotFound)
}

// Read implements store.Store. Only the first one of a job reads from disk.
func (s *Store) Read(ctx context.Context, name string) (*assignment.Assignment, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	j, err := s.find(name)
	if err != nil {
		return nil, err
	}
	s.mu.RLock()
	a := j.newest
	s.mu.RUnlock()
	if a != nil {
		return a, nil
	}
	return call(ctx, s, func(ctx context.Context) (a *assignment.Assignment, err error) {
		err = s.locked(ctx, j, func() (err error) {
			if a, err = s.newest(ctx, name, j); err == nil && a == nil {
				err = fmt.Errorf("assignment of job %s: %w", name, store.ErrNotFound)
			}
			return err
		})
		return a, err
	})
}

// newest needs the job's lock. It returns nil if there is none.
func (s *Store) newest(ctx context.Context, name string, j *job) (*assignment.Assignment, error) {
	switch {
	case j.headErr != nil:
		return nil, j.headErr
	case j.newest != nil || j.head == nil:
		return j.newest, nil
	}
	a, err := s.layout.Read(ctx, s, name, j.head, j.head.Generation)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j.newest = a
	return a, nil
}

// ReadGeneration implements store.Store.
func (s *Store) ReadGeneration(ctx context.Context, name string, g assignment.Generation) (*assignment.Assignment, error) {
	return call(ctx, s, func(ctx context.Context) (a *assignment.Assignment, err error) {
		j, err := s.find(name)
		if err != nil {
			return nil, err
		}
		err = s.locked(ctx, j, func() (err error) {
			switch {
			case j.headErr != nil:
				return j.headErr
			case j.head == nil || g <= 0:
				return noGeneration(name, g)
			case j.newest != nil && j.newest.Generation() == g:
				a = j.newest
				return nil
			}
			a, err = s.layout.Read(ctx, s, name, j.head, g)
			return err
		})
		return a, err
	})
}

// Write implements store.Store.
func (s *Store) Write(ctx context.Context, next *assignment.Assignment) error {
	return s.Commit(ctx, store.Commit{Next: next})
}

// Commit implements store.Journal. There is no job lease here to compare.
func (s *Store) Commit(ctx context.Context, c store.Commit) error {
	next := c.Next
	if err := record.CheckCommit(c); err != nil {
		return err
	}
	_, err := call(ctx, s, func(ctx context.Context) (none struct{}, err error) {
		if next.StoreID() != s.ID() {
			return none, fmt.Errorf("%w: the assignment is of store %016x, this is %016x", store.ErrConflict, next.StoreID(), s.ID())
		}
		j, err := s.find(next.Job())
		if err != nil {
			return none, err
		}
		return none, s.locked(ctx, j, func() error { return s.commit(ctx, j, c) })
	})
	return err
}

// commit needs the job's lock.
func (s *Store) commit(ctx context.Context, j *job, c store.Commit) error {
	next := c.Next
	name, l := next.Job(), &s.layout
	if !j.exists() { // any more
		return noJob(name)
	}
	base, err := s.newest(ctx, name, j)
	if err != nil {
		return err
	}
	var current assignment.Generation
	if base != nil {
		current = base.Generation()
	}
	switch {
	case current != next.Previous():
		return &store.ConflictError{Key: l.Head(name), Current: int64(current)}
	case base == nil && j.goneErr != nil:
		return j.goneErr
	case base == nil && j.gone != nil && next.Generation() <= j.gone.Generation:
		return &store.ConflictError{Key: l.Gone(name), Current: int64(j.gone.Generation)}
	case c.Overrides != store.AnyVersion && j.ordersErr != nil:
		return j.ordersErr
	case c.Overrides != store.AnyVersion && max(c.Overrides, 0) != j.overrides.Version:
		return &store.ConflictError{Key: l.Overrides(name), Current: j.overrides.Version}
	}
	change, err := l.Plan(j.head, base, next, s.cfg.Keep, random())
	if err != nil {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	more, overrides := l.Attach(name, change, c, j.overrides), j.overrides
	if c.Fulfills {
		overrides = overrides.Fulfilled()
	}
	head, generation := l.Records(name, change)
	more.Records = append(append(more.Records, change.Pieces...), head, generation)
	err = set(b, more)
	if from, to := change.DropFrom, change.DropTo; from != to {
		err = errors.Join(err,
			b.DeleteRange([]byte(l.Generation(name, from)), []byte(l.Generation(name, to)), nil),
			b.DeleteRange([]byte(l.ChunksFrom(name, from)), []byte(l.ChunksFrom(name, to)), nil))
	}
	if err != nil {
		return err
	}
	if err := s.write(b); err != nil {
		return err
	}
	s.changed(name, func() { j.head, j.newest, j.overrides = change.Head, next, overrides })
	return nil
}
