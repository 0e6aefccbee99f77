package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
)

// JobConfig is one job that a process serves in consistent mode.
type JobConfig struct {
	// Job is its name; Task and Incarnation identify the process in it.
	Job         string
	Task        string
	Incarnation uint64
	// Fetch gets a generation of the job's assignment, from what the process
	// already has or from a Distributor. It is called from several goroutines.
	Fetch func(ctx context.Context, g assignment.Generation) (*assignment.Assignment, error)
	// Changed, if not nil, is told of each change of belief, nil when there is none any
	// more, one call after the other, and when it is a loss before another task can own
	// the keys. It must return at once: a release waits for it. No change is left out, so
	// a key that was one's own in every belief told since some point has been so without
	// a break.
	Changed func(*Belief)
}

func (c JobConfig) validate() error {
	if err := assignment.ValidateJobName(c.Job); err != nil {
		return err
	}
	switch {
	case c.Task == "":
		return &assignment.FieldError{Field: "task", Value: "", Allowed: "the name of the task"}
	case c.Incarnation == 0:
		return &assignment.FieldError{Field: "incarnation", Value: 0, Allowed: "not 0"}
	case c.Fetch == nil:
		return &assignment.FieldError{Field: "fetch", Value: nil, Allowed: "a function"}
	}
	return nil
}

// Job is a process's part in one job.
type Job struct {
	cfg    JobConfig
	r      *Reader
	belief atomic.Pointer[Belief]

	ctx     context.Context // of all that runs
	cancel  context.CancelFunc
	wanted  context.Context // of what the process is asked for; ends when the job is left
	leave   context.CancelFunc
	calls   sync.WaitGroup // with the store
	fetches sync.WaitGroup

	sessions chan *held  // the newest, nil for none
	looks    chan looked // the newest
	answers  chan answer

	// Of the goroutine that runs the core.
	core      *Core
	held      *held
	err       error // of the answer at hand
	hands     map[assignment.Generation]*assignment.Assignment
	told      *Belief
	stopWatch func()
	seen      bool

	looked   chan struct{} // closed when the records have been seen
	left     chan struct{} // closed when the process has left the job, be it that something is still to be released
	departed bool          // it is; the reader's lock guards this
	leftErr  error         // what is still to be released, and why; the reader's lock guards it
}

type looked struct {
	held *held
	seen Seen
}

type answer struct {
	Event
	hand *assignment.Assignment
	err  error // with Unknown
}

// Join begins to take part in a job. What is held in a job is held once a session,
// so a reader takes part in a job once at a time: the error matches ErrJoined
// until the one before is closed. If that one could not release all, this one begins
// when nothing of it can be carried out late any more: with the job's next
// assignment, or another session. Until then there is nothing to believe in, as for
// any new incarnation, which no older assignment names.
func (r *Reader) Join(cfg JobConfig) (*Job, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admitLocked(cfg.Job); err != nil {
		return nil, fmt.Errorf("lease: job %s: %w", cfg.Job, err)
	}
	j := &Job{cfg: cfg, r: r, core: NewCore(r.cfg.Patience),
		sessions: make(chan *held, 1), looks: make(chan looked, 1), answers: make(chan answer),
		hands: map[assignment.Generation]*assignment.Assignment{}, stopWatch: func() {},
		looked: make(chan struct{}), left: make(chan struct{})}
	j.ctx, j.cancel = context.WithCancel(context.Background())
	j.wanted, j.leave = context.WithCancel(j.ctx)
	r.jobs[j] = struct{}{}
	select {
	case r.wanted <- struct{}{}:
	default:
	}
	if !r.waitsLocked(j) {
		j.setSessionLocked(r.current)
	}
	r.wg.Go(j.run)
	return j, nil
}

// Belief is what the task may believe in now; nil if nothing. It reads the clock, takes
// no lock and allocates nothing. A caller that keeps the result asks it Valid, or Owns,
// again at each use.
func (j *Job) Belief() *Belief {
	if b := j.belief.Load(); b.Valid() {
		return b
	}
	return nil
}

// Owns reports whether the key is the task's own now: Belief().Owns(k) with one
// reading of the clock.
func (j *Job) Owns(k assignment.SliceKey) bool { return j.belief.Load().Owns(k) }

// Ready waits until a session is open and guard and bridge have been seen, which
// does not mean that there is anything to believe in. Its error matches ctx's, or
// ErrUnavailable.
func (j *Job) Ready(ctx context.Context) error {
	select {
	case <-j.looked:
	case <-ctx.Done():
		return fmt.Errorf("lease: job %s: %w: %w", j.cfg.Job, context.Cause(ctx), j.r.why())
	case <-j.wanted.Done():
	}
	if j.wanted.Err() != nil {
		return fmt.Errorf("lease: job %s: closed", j.cfg.Job)
	}
	return nil
}

// setSessionLocked gives the job the newest session. The reader's lock is held.
func (j *Job) setSessionLocked(h *held) {
	select {
	case <-j.sessions:
	default:
	}
	j.sessions <- h
}

// run runs the core until the reader is closed, or the job is left and done with.
func (j *Job) run() {
	defer j.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	wanted := j.wanted.Done()
	for !j.core.Left() {
		select {
		case <-j.ctx.Done():
			return
		case <-wanted:
			wanted = nil
			j.step(Event{Kind: Leave})
		case h := <-j.sessions:
			j.enter(h)
		case l := <-j.looks:
			if l.held == j.held {
				j.step(Event{Kind: Looked, Session: j.held.session.ID(), Seen: l.seen})
			}
		case a := <-j.answers:
			if a.hand != nil {
				j.hands[a.Generation] = a.hand
			}
			j.err = a.err
			j.step(a.Event)
		case <-timer.C:
			j.step(Event{Kind: Tick})
		}
		j.tell()
		timer.Reset(j.next())
	}
}

// enter goes over to another session, or to none; or looks at the clock again.
func (j *Job) enter(h *held) {
	if h == j.held {
		j.step(Event{Kind: Tick})
		return
	}
	j.stopWatch()
	j.stopWatch = func() {}
	if j.held != nil {
		j.step(Event{Kind: Gone, Session: j.held.session.ID()})
	}
	j.held = h
	if h == nil {
		return
	}
	j.step(Event{Kind: Opened, Session: h.session.ID(), Most: h.ttl / 2})
	ctx, cancel := context.WithCancel(j.ctx)
	done := make(chan struct{})
	j.stopWatch = func() { cancel(); <-done } // so that no look of an old session takes the place of a new one's
	j.calls.Go(func() {
		defer close(done)
		j.watch(ctx, h)
	})
}

// next is how long until something is due without an event: a retry, or the
// deadline, which the listener is told of.
func (j *Job) next() time.Duration {
	now, at := j.r.cfg.Clock(), time.Duration(math.MaxInt64)
	if wake, ok := j.core.Wake(); ok {
		at = wake
	}
	if j.told != nil {
		at = min(at, time.Duration(j.told.term.deadline.Load()))
	}
	return max(at-now, 0)
}

// tell tells of a change of belief, be it that the clock alone has ended it.
func (j *Job) tell() {
	b := j.belief.Load()
	if !b.Valid() {
		b = nil
	}
	if b != j.told {
		j.change(b)
	}
}

func (j *Job) change(b *Belief) {
	j.told = b
	j.r.stats.beliefs.WithLabelValues(j.cfg.Job, b.holding()).Inc()
	if j.cfg.Changed != nil {
		j.cfg.Changed(b)
	}
}

func (j *Job) step(e Event) {
	valid := j.held != nil && j.held.term.valid()
	if e.Kind == Looked && !j.seen {
		j.seen = true
		close(j.looked)
	}
	for _, a := range j.core.Step(j.r.cfg.Clock(), valid, e) {
		j.act(a)
	}
	if len(j.hands) > 0 {
		named := j.core.Named()
		for g := range j.hands {
			if !slices.Contains(named, g) {
				delete(j.hands, g)
			}
		}
	}
	j.depart(valid, e)
}

func (j *Job) act(a Action) {
	switch a.Kind {
	case Believe:
		j.belief.Store(j.believe(a.Holding))
		j.tell()
	case AcquireClaim:
		h := j.held
		j.calls.Go(func() { j.acquire(h, a.Claim) })
	case ReleaseClaim:
		h := j.held
		j.calls.Go(func() { j.release(h, a.Claim) })
	case Fetch:
		ttl := j.held.ttl
		j.fetches.Go(func() { j.fetch(a.Generation, ttl) })
	}
}

// believe makes of generations what is asked for keys.
func (j *Job) believe(h Holding) *Belief {
	b := &Belief{}
	if j.held != nil {
		b.term = j.held.term
	}
	switch {
	case h.Guard != 0:
		b.before = j.ownership(h.Guard)
	case h.From != 0:
		b.before, b.after = j.ownership(h.From), j.ownership(h.To)
	default:
		return nil
	}
	return b
}

func (j *Job) ownership(g assignment.Generation) ownership {
	return see(j.hands[g], j.cfg.Task, j.cfg.Incarnation)
}

// answer gives the core an answer, unless ctx ends first.
func (j *Job) answer(ctx context.Context, a answer) {
	select {
	case j.answers <- a:
	case <-ctx.Done():
	}
}

// retry is after how long to try again, in a session of this lease time.
func retry(ttl time.Duration) time.Duration { return backoff.Jitter(ttl / 20) }

func (j *Job) watch(ctx context.Context, h *held) {
	for ctx.Err() == nil {
		err := j.follow(ctx, h)
		if errors.Is(err, ErrLost) {
			h.doubt()
		}
		if err != nil && ctx.Err() == nil {
			j.r.cfg.Logger.Warn("watch of guard and bridge broken", "job", j.cfg.Job, "error", err)
		}
		wait := retry(h.ttl)
		if errors.Is(err, ErrRefused) { // until it is given the right
			wait = backoff.Jitter(h.ttl)
		}
		backoff.Sleep(ctx, wait)
	}
}

func (j *Job) takePart(ctx context.Context, s ReadSession) error {
	if named, ok := s.(TaskSession); ok {
		return named.JoinAs(ctx, j.cfg.Job, j.cfg.Task)
	}
	return s.Join(ctx, j.cfg.Job)
}

func (j *Job) follow(ctx context.Context, h *held) error {
	if err := j.takePart(ctx, h.session); err != nil {
		return err
	}
	w, err := h.session.Watch(ctx, j.cfg.Job)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		seen, err := w.Next(ctx)
		if err != nil {
			return err
		}
		select {
		case <-j.looks:
		default:
		}
		select {
		case j.looks <- looked{h, seen}:
		case <-ctx.Done():
			return nil
		}
	}
}
