package backupdist

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/backupdist/protocol"
)

// readWithin bounds one read from the store.
const readWithin = 10 * time.Second

// job is what the store says of one job. One goroutine (run) reads it; all else looks at
// the state.
type job struct {
	s    *Server
	name string
	wake chan struct{} // holds a token when run is to look again
	refs int           // guarded by Server.mu

	askedBy string // whose limit the name counts to while no store is known to have it, or ""; the reader's

	mu     sync.Mutex
	core   *protocol.Job
	update *update       // of the state's newest assignment, nil if there is none
	next   chan struct{} // closed and replaced after each reading
	olders map[olderID]*older
}

// state is what is known at one moment.
type state struct {
	protocol.State
	update *update
	next   <-chan struct{} // closed when a newer state has taken this one's place
}

func newJob(s *Server, name string) *job {
	return &job{s: s, name: name, wake: make(chan struct{}, 1), core: protocol.NewJob(name), next: make(chan struct{}), olders: make(map[olderID]*older)}
}

func (j *job) now() state {
	j.mu.Lock()
	defer j.mu.Unlock()
	return state{j.core.State(), j.update, j.next}
}

// notify tells the core what has happened, and run to look again.
func (j *job) notify(what func(*protocol.Job)) {
	j.mu.Lock()
	what(j.core)
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// aged reports whether the store may have something newer than what is known.
func (j *job) aged() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.core.Aged()
}

// run reads the job when it has changed, until Close, or until the store does not
// know it and nothing needs it.
func (j *job) run() {
	for j.s.life.Err() == nil {
		idle := j.s.needed(j) == 0
		switch do, wait := j.due(idle); do {
		case protocol.ToRead:
			j.read(idle)
		case protocol.ToDrop:
			if j.s.drop(j) {
				return
			}
			j.sleep(wait)
		case protocol.ToPause:
			backoff.Sleep(j.s.life, wait)
		case protocol.ToWait:
			j.sleep(wait)
		}
	}
}

func (j *job) due(idle bool) (protocol.Todo, time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.core.Next(time.Now(), idle)
}

// sleep waits for a token, or for d if it is not negative.
func (j *job) sleep(d time.Duration) {
	var late <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-j.wake:
	case <-late:
	case <-j.s.life.Done():
	}
}

// read takes in what the store has.
func (j *job) read(idle bool) {
	j.s.reading <- struct{}{}
	defer func() { <-j.s.reading }()
	j.mu.Lock()
	j.core.Begin()
	old := j.core.State()
	j.mu.Unlock()
	ctx, cancel := context.WithTimeout(j.s.life, readWithin)
	defer cancel()
	r := j.fetch(ctx, old)
	j.mu.Lock()
	err := j.core.Read(time.Now(), r, idle, rand.Float64())
	switch st := j.core.State(); {
	case st.Newest == nil:
		j.update = nil
	case st.Newest != old.Newest:
		j.update = newUpdate(st.Base, st.Newest, st.Parts, j.s)
	}
	close(j.next)
	j.next = make(chan struct{})
	j.mu.Unlock()
	j.s.m.read(err)
	if err == nil && r.Exists && j.askedBy != "" {
		j.s.unknowns.Known(j.askedBy)
		j.askedBy = ""
	}
	if err != nil {
		j.s.log.Warn("job not read from the store", "job", j.name, "error", err)
	}
}

func (j *job) fetch(ctx context.Context, old protocol.State) protocol.Reading {
	var home *source
	if old.Known && !old.Missing {
		home = j.s.sources[old.Home]
	}
	f := j.s.find(ctx, j.name, home)
	if f.source == nil {
		return protocol.Reading{Err: f.err}
	}
	a, err := f.source.store.Read(ctx, j.name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return protocol.Reading{Err: f.source.named(err)}
	}
	return protocol.Reading{Exists: true, Home: slices.Index(j.s.sources, f.source), Config: f.job.Config, Assignment: a}
}

// why is the status for a subscriber that cannot be served.
func (j *job) why(st protocol.State, p *petition) error {
	switch {
	case st.Missing:
		return status.Errorf(codes.NotFound, "job %q does not exist; slicerctl job apply makes it", j.name)
	case st.Err != nil:
		return p.unread(j.name, fmt.Errorf("job %q: %w", j.name, st.Err))
	}
	return p.unread(j.name, nil)
}

// statusOf is the status for an error of the store's.
func statusOf(err error) error {
	code := codes.Unavailable
	switch {
	case errors.Is(err, store.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, store.ErrCorrupt):
		code = codes.DataLoss
	case errors.Is(err, store.ErrUnavailable):
		// also if its time was over: the caller learns whose
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	}
	return status.Error(code, err.Error())
}
