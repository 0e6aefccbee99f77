package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

func noJob(name string) error { return fmt.Errorf("job %s: %w", name, store.ErrNotFound) }

// find returns a job that exists.
func (s *Store) find(name string) (*job, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if j := s.jobs[name]; j != nil && j.exists() {
		return j, nil
	}
	if err := assignment.ValidateJobName(name); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	return nil, noJob(name)
}

// GetJob implements store.Store.
func (s *Store) GetJob(ctx context.Context, name string) (store.Job, error) {
	if err := s.ready(ctx); err != nil {
		return store.Job{}, err
	}
	j, err := s.find(name)
	if err != nil {
		return store.Job{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case j.configErr != nil:
		return store.Job{}, j.configErr
	case j.config == nil: // any more
		return store.Job{}, noJob(name)
	}
	return *j.config, nil
}

// ListJobs implements store.Store.
func (s *Store) ListJobs(ctx context.Context) (jobs []store.Job, corrupt error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(s.jobs)) {
		switch j := s.jobs[name]; {
		case j.configErr != nil:
			corrupt = errors.Join(corrupt, j.configErr)
		case j.config != nil:
			jobs = append(jobs, *j.config)
		}
	}
	return jobs, corrupt
}

// PutJob implements store.Store.
func (s *Store) PutJob(ctx context.Context, c assignment.JobConfig, expect int64) (store.Job, error) {
	return s.putJob(ctx, c, expect, nil)
}

// PutJobBy implements store.Journal.
func (s *Store) PutJobBy(ctx context.Context, c assignment.JobConfig, expect int64, by store.Entry) (store.Job, error) {
	if err := record.CheckNote(by); err != nil {
		return store.Job{}, err
	}
	return s.putJob(ctx, c, expect, &by)
}

func (s *Store) putJob(ctx context.Context, c assignment.JobConfig, expect int64, by *store.Entry) (store.Job, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return store.Job{}, err
	}
	return call(ctx, s, func(ctx context.Context) (put store.Job, err error) {
		s.mu.Lock()
		j := s.entryLocked(c.Name)
		s.mu.Unlock()
		err = s.locked(ctx, j, func() error {
			version, stored, creator := int64(0), int64(0), by.Creator()
			switch {
			case j.configErr != nil:
				return j.configErr
			case j.config != nil:
				version, stored, creator = j.config.Version, j.config.Version, j.config.CreatedBy
			case j.goneErr != nil:
				return j.goneErr
			case j.gone != nil:
				version = j.gone.Version
			}
			if expect > 0 && expect != stored || expect < 0 && stored != 0 {
				return &store.ConflictError{Key: s.layout.Config(c.Name), Current: stored}
			}
			if by != nil && j.ordersErr != nil {
				return j.ordersErr
			}
			put = store.Job{Config: c, Version: version + 1, CreatedBy: creator}
			overrides, ordered := j.overrides, j.ordered
			var puts record.Puts
			if by != nil {
				overrides, puts = s.layout.Note(put, overrides, *by)
				ordered = true
			}
			puts.Records = append(puts.Records, record.KV{Key: s.layout.Config(c.Name), Value: s.layout.EncodeJob(put)})
			b := s.db.NewBatch()
			defer b.Close()
			if err := set(b, puts); err != nil {
				return err
			}
			if j.config == nil { // a process of an older version may have left them when it deleted the job
				if err := b.Delete([]byte(record.NamesKey(s.layout, c.Name)), nil); err != nil {
					return err
				}
			}
			if err := s.write(b); err != nil {
				return err
			}
			s.changed(c.Name, func() { j.config, j.overrides, j.ordered = &put, overrides, ordered })
			return nil
		})
		return put, err
	})
}

// DeleteJob implements store.Store.
func (s *Store) DeleteJob(ctx context.Context, name string) error { return s.deleteJob(ctx, name, nil) }

// DeleteJobBy implements store.Journal.
func (s *Store) DeleteJobBy(ctx context.Context, name string, by store.Entry) error {
	if err := record.CheckNote(by); err != nil {
		return err
	}
	return s.deleteJob(ctx, name, &by)
}

func (s *Store) deleteJob(ctx context.Context, name string, by *store.Entry) error {
	_, err := call(ctx, s, func(ctx context.Context) (none struct{}, err error) {
		j, err := s.find(name)
		if err != nil {
			return none, err
		}
		return none, s.locked(ctx, j, func() error { return s.delete(name, j, by) })
	})
	return err
}

// delete needs the job's lock.
func (s *Store) delete(name string, j *job, by *store.Entry) error {
	if !j.exists() {
		return noJob(name)
	}
	l := &s.layout
	generations, err := s.scan(l.Generations(name), record.After(l.Generations(name)))
	if err != nil && !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	// The newest generation, from its key: the head may be corrupt.
	var last assignment.Generation
	if n := len(generations); n > 0 {
		last, _ = l.GenerationOf(name, generations[n-1].Key)
	}
	if j.head != nil {
		last = max(last, j.head.Generation)
	}
	var config []byte
	if j.config != nil {
		config = l.EncodeJob(*j.config)
	}
	var gone *record.KV
	switch {
	case j.gone != nil:
		gone = &record.KV{Value: l.EncodeTombstone(name, *j.gone)}
	case j.goneErr != nil:
		gone = &record.KV{}
	}
	var overrides *record.KV
	switch {
	case j.ordersErr != nil:
		overrides = &record.KV{}
	case j.ordered:
		overrides = &record.KV{Value: l.EncodeOverrides(name, j.overrides)}
	}
	t, remains := l.Bury(name, config, gone, overrides, last, by)
	b := s.db.NewBatch()
	defer b.Close()
	err = errors.Join(
		b.Delete([]byte(l.Config(name)), nil),
		b.Delete([]byte(l.Head(name)), nil),
		b.Delete([]byte(l.Overrides(name)), nil),
		b.Delete([]byte(record.NamesKey(*l, name)), nil),
		set(b, remains),
		b.DeleteRange([]byte(l.Generations(name)), []byte(record.After(l.Generations(name))), nil),
		b.DeleteRange([]byte(l.Chunks(name)), []byte(record.After(l.Chunks(name))), nil),
	)
	if err != nil {
		return err
	}
	if err := s.write(b); err != nil {
		return err
	}
	s.changed(name, func() {
		j.config, j.configErr, j.head, j.headErr, j.newest = nil, nil, nil, nil, nil
		j.gone, j.goneErr = &t, nil
		j.overrides, j.ordersErr, j.ordered = store.Overrides{Version: t.Overrides}, nil, false
	})
	return nil
}

// changed makes an acknowledged change seen, and tells the watchers.
func (s *Store) changed(name string, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	for w := range s.watchers {
		w.Add(s.jobs[name].changeLocked(name))
	}
}

// changeLocked is what is stored of a job. Store.mu is held.
func (j *job) changeLocked(name string) store.Change {
	c := store.Change{Job: name}
	if j.config != nil {
		c.Version, c.Overrides = j.config.Version, j.overrides.Version
	}
	if j.head != nil {
		c.Generation = j.head.Generation
	}
	if j.configErr != nil || j.headErr != nil || j.ordersErr != nil {
		c.Version = -1
	}
	return c
}
