package backupdist

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/backupdist/protocol"
)

// source is one store and what is known of it.
type source struct {
	s     *Server
	name  string
	store store.Store
	log   *slog.Logger

	mu      sync.Mutex
	listed  bool  // it has named its jobs
	reason  error // why it is not watched just now
	watched bool  // it names jobs that change
	checked bool  // it has been asked whether it can be read
	answers bool  // it could, when it was asked last
}

func newSource(s *Server, st NamedStore) *source {
	name := st.Name
	if name == "" {
		name = "default"
	}
	src := &source{s: s, name: name, store: st.Store, log: s.log.With("store", name)}
	s.m.watched.WithLabelValues(name).Set(0)
	s.m.lastRead.WithLabelValues(name).Set(0)
	return src
}

func (src *source) ready() error {
	src.mu.Lock()
	defer src.mu.Unlock()
	switch {
	case src.listed:
		return nil
	case src.reason != nil:
		return fmt.Errorf("store %s has not answered yet: %w", src.name, src.reason)
	}
	return fmt.Errorf("store %s has not answered yet", src.name)
}

// watch makes each job that the store names due to be read, until Close.
func (src *source) watch() {
	life := src.s.life
	for failures := 0; life.Err() == nil; failures++ {
		began := time.Now()
		err := src.watchOnce()
		src.watching(false, err)
		if life.Err() != nil {
			return
		}
		src.log.Warn("the store cannot be watched", "error", err)
		if time.Since(began) > protocol.RetryMax {
			failures = 0
		}
		backoff.Sleep(life, protocol.RetryWait(failures, rand.Float64()))
	}
}

func (src *source) watchOnce() error {
	s := src.s
	w, err := src.store.Watch(s.life)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		names, err := w.Next(s.life)
		if err != nil {
			return err
		}
		src.watching(true, nil)
		for _, name := range names.Jobs() {
			if j, err := s.acquire(name, ""); err == nil {
				j.notify((*protocol.Job).Changed)
				s.release(j)
			} else if s.life.Err() == nil {
				src.log.Error("job not held", "job", name, "error", err)
			}
		}
	}
}

// found is a job in the store that has it.
type found struct {
	source *source // nil: there is no such job, or err says why that is not known
	job    store.Job
	err    error
}

// find asks for a job where it was, and all stores if it is not there. That one of
// them does not answer does not hide a job that another one has; that there is no
// such job takes the word of all.
func (s *Server) find(ctx context.Context, name string, home *source) found {
	if home != nil {
		if f := home.get(ctx, name); f.source != nil || f.err != nil {
			return f
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan found, len(s.sources))
	for _, src := range s.sources {
		// Close waits for the reader of the job, or for the handler, which wait here.
		s.wg.Go(func() { answers <- src.get(ctx, name) })
	}
	var failed error
	for range s.sources {
		switch f := <-answers; {
		case f.source != nil:
			return f
		case f.err != nil:
			failed = errors.Join(failed, f.err)
		}
	}
	return found{err: failed}
}

func (src *source) get(ctx context.Context, name string) found {
	j, err := src.store.GetJob(ctx, name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return found{}
	case err != nil:
		return found{err: src.named(err)}
	}
	return found{source: src, job: j}
}

// named says which of several stores an error is of.
func (src *source) named(err error) error {
	if len(src.s.sources) == 1 {
		return err
	}
	return fmt.Errorf("store %s: %w", src.name, err)
}
