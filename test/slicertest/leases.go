package slicertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/serve"
	"github.com/slicer-project/slicer/slicelet"
)

// Consistent puts a job that has no task and no client yet into consistent mode: at most one task
// at a time owns a key, by leases that the environment grants, and a key has one task and no
// replicas. Assign, Expire and drains then return when the change is in force, which is when every task
// of Slicelet owns what it is to own.
//
// Leases are lost by Lose and by nothing else, however long the test takes or time passes: so
// a slow machine and a debugger end none. That is so for tasks of Slicelet and of Leases. Others, such
// as processes, reach the leases by package lease/remote where the environment serves (Distributors,
// Loopback); theirs run out in the usual way.
func (e *Env) Consistent(job string) {
	e.helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.jobLocked(job)
	switch {
	case err != nil:
		e.fail(err)
	case j.newest != nil || len(j.streams) > 0:
		e.fail(&assignment.FieldError{Field: "job", Value: job, Allowed: "one without tasks and clients: the mode does not change under them"})
	case !j.consistent:
		j.consistent = true
		e.serving.Go(func() { e.lead(j) })
	}
}

// Leases are those of one process, for slicelet.Config.Leases: for slicelets that the
// test or its program makes itself. Slicelet has one of its own for each that it makes. The
// environment closes it. The task is the one that Lose names.
func (e *Env) Leases(task string) *lease.Reader {
	e.helper()
	r, _ := e.reader(task)
	return r
}

// Lose takes the leases of a task away, in all jobs, as they are lost by a process that is stopped, or cut
// off, for longer than they last: from now on the task owns nothing, other tasks may own
// what it had, and it gets no lease until regain. Lose returns when the task's listeners have
// been told and have returned. regain lets it have its leases again, and returns when it owns what
// the newest assignment says. Nothing moves to other tasks by Lose alone: Assign or Expire does
// that.
func (e *Env) Lose(task string) (regain func()) {
	e.helper()
	lines := e.linesOf(task)
	if len(lines) == 0 {
		e.fail(&assignment.FieldError{Field: "task", Value: task, Allowed: "one of Slicelet in a consistent job, or of Leases"})
	}
	for _, l := range lines {
		l.lose()
	}
	e.settleLeases(patience)
	return func() {
		e.helper()
		for _, l := range lines {
			l.regain()
		}
		// A reader that has asked in vain for as long as leases last asks again after half of that.
		e.settleLeases(lease.MaxTTL)
	}
}

// settleLeases waits until all tasks own what they are to own, in all jobs.
func (e *Env) settleLeases(patience time.Duration) {
	e.helper()
	e.mu.Lock()
	jobs := slices.Sorted(maps.Keys(e.jobs))
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, job := range jobs {
		if err := e.owned(ctx, job); err != nil {
			e.fail(fmt.Errorf("job %q: %w", job, err))
		}
	}
}

// owned waits until the tasks of a consistent job own what the newest assignment says, and all
// listeners have returned.
func (e *Env) owned(ctx context.Context, job string) error {
	for {
		changed, waiting := e.unsettled(job)
		if len(waiting) == 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the newest assignment is not in force: %q: %w", waiting, ctx.Err())
		}
	}
	for _, s := range e.sliceletsOf(job) {
		if err := s.AwaitListeners(ctx); err != nil && !errors.Is(err, slicelet.ErrClosed) {
			return err
		}
	}
	return nil
}

// unsettled is what the newest assignment of a job in consistent mode waits for until it is in
// force.
func (e *Env) unsettled(job string) (changed <-chan struct{}, waiting []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j := e.jobs[job]
	if !j.consistent || j.newest == nil {
		return nil, nil
	}
	if j.inForce < j.generation() {
		waiting = append(waiting, "the leases")
	}
	for _, s := range e.slicelets {
		m := j.member(s.task)
		if s.job != job || s.line == nil || m == nil || m.stream == nil {
			continue
		}
		var want []assignment.Slice
		if !s.line.isLost() {
			want = j.places.of(s.task)
		}
		if s.width != width(want) || !slices.Equal(joined(s.Slices()), want) {
			waiting = append(waiting, s.task)
		}
	}
	return j.changed, waiting
}

func (e *Env) isConsistent(job string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	j := e.jobs[job]
	return j != nil && j.consistent
}

// of are the keys that a task has, in order, joined where they touch.
func (p placement) of(task string) (own []assignment.Slice) {
	for i, c := range p {
		end := assignment.KeyspaceEnd
		if i+1 < len(p) {
			end = p[i+1].start
		}
		if slices.Contains(c.tasks, task) {
			own = append(own, assignment.Slice{Start: c.start, End: end})
		}
	}
	return joined(own)
}

// joined makes one of slices that touch.
func joined(all []assignment.Slice) (out []assignment.Slice) {
	for _, s := range all {
		if n := len(out); n > 0 && out[n-1].End == s.Start {
			out[n-1].End = s.End
		} else {
			out = append(out, s)
		}
	}
	return out
}

func width(all []assignment.Slice) (n uint64) {
	for _, s := range all {
		n += s.Width()
	}
	return n
}

// SlicesChanged wakes what waits until the task owns what it is to own.
func (s *ownSlicelet) SlicesChanged(_ context.Context, c slicelet.Change) {
	s.env.mu.Lock()
	defer s.env.mu.Unlock()
	for _, r := range c.Departed {
		s.width -= r.Width()
	}
	for _, r := range c.Arrived {
		s.width += r.Width()
	}
	s.env.jobs[s.job].notify()
}

// lead brings the newest assignments of a job in force, as an assigner does, until Close.
func (e *Env) lead(j *jobState) {
	for e.ctx.Err() == nil {
		if err := e.leadOnce(j); err != nil && e.ctx.Err() == nil && !errors.Is(err, lease.ErrLost) && !errors.Is(err, lease.ErrDeposed) {
			panic(fmt.Sprintf("slicertest: leases of job %q: %v", j.name, err)) // there is nothing that could fail
		}
	}
}

func (e *Env) leadOnce(j *jobState) error {
	w, err := e.store.OpenWriter(e.ctx, lease.MaxTTL)
	if err != nil {
		return err
	}
	defer w.Close(context.Background())
	token, err := w.Lead(e.ctx, j.name)
	if err != nil {
		return err
	}
	renew := time.NewTicker(lease.MaxTTL / 3)
	defer renew.Stop()
	for {
		e.mu.Lock()
		newest, inForce, changed := j.generation(), j.inForce, j.changed
		e.mu.Unlock()
		if newest > inForce {
			if _, err := lease.Advance(e.ctx, w, lease.Change{Job: j.name, Token: token, Wanted: newest, Wait: time.Second}); err != nil {
				return err
			}
			e.mu.Lock()
			j.inForce = newest
			j.notify()
			e.mu.Unlock()
			continue
		}
		select {
		case <-changed:
		case <-renew.C:
			if err := w.KeepAlive(e.ctx); err != nil {
				return err
			}
		case <-e.ctx.Done():
			return nil
		}
	}
}

// termsOf is what the lease store asks of a job.
func (e *Env) termsOf(_ context.Context, job string) (serve.Terms, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if j := e.jobs[job]; j != nil && j.consistent {
		return serve.Terms{LeaseTime: lease.MaxTTL}, nil
	}
	return serve.Terms{}, nil
}

// reader makes the leases of a process.
func (e *Env) reader(task string) (*lease.Reader, *line) {
	e.helper()
	l := &line{store: e.store, task: task, changed: make(chan struct{})}
	r, err := lease.NewReader(lease.Config{Readers: l, TTL: lease.MaxTTL, Clock: l.clock})
	if err != nil {
		e.fail(err)
	}
	e.own(r.Close)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, l)
	return r, l
}

func (e *Env) linesOf(task string) (all []*line) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.lines {
		if l.task == task {
			all = append(all, l)
		}
	}
	return all
}

// line is the way of one process to its leases. Its clock stands still, so that no deadline passes but
// by Lose.
type line struct {
	store *serve.Store
	task  string
	ahead atomic.Int64 // the clock

	mu      sync.Mutex
	lost    bool
	changed chan struct{} // closed and replaced when lost changes
	open    []*session
}

func (l *line) clock() time.Duration { return time.Duration(l.ahead.Load()) }

func (l *line) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// lose ends belief first, as a deadline does, and then what it rests on.
func (l *line) lose() {
	l.ahead.Add(int64(2 * lease.MaxTTL))
	for _, s := range l.set(true) {
		_ = s.ReadSession.Close(context.Background()) // it is this process's store
		s.end()
	}
}

func (l *line) regain() { l.set(false) }

// set changes whether the leases are lost, and returns the sessions that have been open.
func (l *line) set(lost bool) (ended []*session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost, ended, l.open = lost, l.open, nil
	close(l.changed)
	l.changed = make(chan struct{})
	return ended
}

// OpenReader is lease.Readers'. It waits while the leases are lost.
func (l *line) OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (lease.ReadSession, error) {
	for {
		l.mu.Lock()
		lost, changed := l.lost, l.changed
		l.mu.Unlock()
		if !lost {
			return l.begin(ctx, ttl, jobs)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: lost by the test", lease.ErrUnavailable)
		}
	}
}

func (l *line) begin(ctx context.Context, ttl time.Duration, jobs []string) (lease.ReadSession, error) {
	inner, err := l.store.OpenReader(ctx, ttl, jobs...)
	if err != nil {
		return nil, err
	}
	s := &session{ReadSession: inner}
	s.life, s.end = context.WithCancel(context.Background())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		s.end()
		return nil, errors.Join(lease.ErrUnavailable, inner.Close(ctx))
	}
	l.open = append(l.open, s)
	return s, nil
}

// session is one whose watches end with it, so that the reader learns of the loss at once.
type session struct {
	lease.ReadSession
	life context.Context
	end  context.CancelFunc
}

func (s *session) Watch(ctx context.Context, job string) (lease.Watcher, error) {
	w, err := s.ReadSession.Watch(ctx, job)
	return &watcher{w, s.life}, err
}

func (s *session) Close(ctx context.Context) error {
	s.end()
	return s.ReadSession.Close(ctx)
}

type watcher struct {
	lease.Watcher
	life context.Context
}

func (w *watcher) Next(ctx context.Context) (lease.Seen, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.life, cancel)()
	seen, err := w.Watcher.Next(ctx)
	if w.life.Err() != nil {
		err = lease.ErrLost
	}
	return seen, err
}

// records are what the lease store keeps for good: nothing, since no store follows it.
type records struct{}

func (records) Load(context.Context) (map[string][]byte, error) { return nil, nil }
func (records) Put(context.Context, map[string][]byte) error    { return nil }
