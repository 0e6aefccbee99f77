package backupdist

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store"
)

// readWithin bounds one read from the store.
const readWithin = 10 * time.Second

// job is what the store says of one job. One goroutine (run) reads it; everybody
// else looks at the state.
type job struct {
	s    *Server
	name string
	wake chan struct{} // holds a token when run is to look again
	refs int           // guarded by Server.mu

	mu      sync.Mutex
	stale   bool // the store may have something newer
	reading bool
	state   state
}

// state is never changed once others can see it; a newer one takes its place.
type state struct {
	known   bool    // the store has answered
	missing bool    // with known: there is no such job
	err     error   // without known: why not
	home    *source // of a job that is there
	config  assignment.JobConfig
	update  *update       // nil: no assignment yet
	next    chan struct{} // closed when a newer state has taken this one's place
}

func newJob(s *Server, name string) *job {
	return &job{s: s, name: name, wake: make(chan struct{}, 1), stale: true, state: state{next: make(chan struct{})}}
}

func (j *job) now() state {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state
}

func (j *job) poke() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// changed has the job read again.
func (j *job) changed() {
	j.mu.Lock()
	j.stale = true
	j.mu.Unlock()
	j.poke()
}

// aged says whether the store may have something newer than what is held.
func (j *job) aged() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stale || j.reading
}

// needed has somebody who has come served with what is newest: a job that is
// said to be missing may exist by now.
func (j *job) needed() {
	j.mu.Lock()
	if j.state.missing {
		j.stale = true
	}
	j.mu.Unlock()
	j.poke()
}

// run reads the job when it has changed, until Close, or until the store does not
// know it and nobody needs it.
func (j *job) run() {
	var p pace
	for j.s.life.Err() == nil {
		idle := j.s.needed(j) == 0
		switch do, wait := j.due(&p, time.Now(), idle); do {
		case toRead:
			p.read(time.Now(), j.read(), idle, rand.Float64())
		case toDrop:
			if j.s.drop(j) {
				return
			}
			j.sleep(wait)
		case toPause:
			backoff.Sleep(j.s.life, wait)
		case toWait:
			j.sleep(wait)
		}
	}
}

func (j *job) due(p *pace, now time.Time, idle bool) (todo, time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return p.next(now, j.stale, j.state.missing, idle)
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
func (j *job) read() error {
	j.s.reading <- struct{}{}
	defer func() { <-j.s.reading }()
	old := j.begin()
	ctx, cancel := context.WithTimeout(j.s.life, readWithin)
	defer cancel()
	next, err := j.fetch(ctx, old)
	j.settle(old, next, err)
	return err
}

// begin is what is held before a reading.
func (j *job) begin() (old state) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stale, j.reading = false, true
	return j.state
}

// settle takes in what a reading came to. What is held stays when the store does
// not answer.
func (j *job) settle(old, next state, err error) {
	j.s.m.read(err)
	if err != nil {
		j.s.log.Warn("job not read from the store", "job", j.name, "error", err)
		if next = old; !old.known {
			next.err = err
		}
	}
	next.next = make(chan struct{})
	j.mu.Lock()
	j.stale, j.reading = j.stale || err != nil, false
	j.state = next
	j.mu.Unlock()
	close(old.next)
}

func (j *job) fetch(ctx context.Context, old state) (state, error) {
	f := j.s.find(ctx, j.name, old.home)
	var a *assignment.Assignment
	if f.source != nil {
		var err error
		if a, err = f.source.store.Read(ctx, j.name); err != nil && !errors.Is(err, store.ErrNotFound) {
			return state{}, f.source.named(err)
		}
	}
	return j.merge(old, f, a)
}

// merge is what is to be held: the newest, whatever the store says. a is nil when
// the store has none.
func (j *job) merge(old state, f found, a *assignment.Assignment) (state, error) {
	switch {
	case f.err != nil:
		return state{}, f.err
	case f.source == nil:
		return state{known: true, missing: true}, nil
	}
	next := state{known: true, home: f.source, config: f.job.Config}
	switch {
	case a == nil:
	case a.Job() != j.name:
		return state{}, fmt.Errorf("the store holds an assignment of job %q for it", a.Job())
	case a.Newer(old.assignment()):
		next.update = newUpdate(old.assignment(), a, j.s)
	default:
		next.update = old.update
	}
	return next, nil
}

// assignment is nil when none is held.
func (st state) assignment() *assignment.Assignment {
	if st.update == nil {
		return nil
	}
	return st.update.a
}

// why is the status for a subscriber that cannot be served.
func (j *job) why(st state) error {
	switch {
	case st.missing:
		return status.Errorf(codes.NotFound, "job %q does not exist; slicerctl job apply makes it", j.name)
	case st.err != nil:
		return statusOf(fmt.Errorf("job %q: %w", j.name, st.err))
	}
	return status.Errorf(codes.Unavailable, "job %q: the store has not answered yet", j.name)
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
