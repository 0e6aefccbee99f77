package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
)

// Change says how an assigner carries a job forward.
type Change struct {
	Job   string
	Token Token
	// Wanted is the newest generation that is stored, whole; 0 to only complete
	// what is under way.
	Wanted assignment.Generation
	// Wait bounds how long a recall waits for readers to come onto the bridge,
	// and the bridge's for them to come onto the guard.
	Wait time.Duration
	// Observe, if not nil, is told of each step that is carried out, and how
	// long it was called for before it could be.
	Observe func(s Step, read State, took time.Duration)
}

// Advance carries out, one after the other, the steps that the records call for, until
// none is. It returns the records as they are then. It can be interrupted at any point by
// anything, and any holder of the job lease can go on.
//
// An error that matches ErrDeposed says that the job lease is lost; other errors
// of the store are waited out, until ctx ends.
func Advance(ctx context.Context, w WriteSession, c Change) (State, error) {
	a := advance{w: bounded{w}, Change: c}
	pause := 10 * time.Millisecond
	for {
		read, err := a.w.State(ctx, c.Job)
		for err == nil {
			if Next(read, c.Wanted).Kind == Idle {
				return read, nil
			}
			var on State
			if on, err = a.step(ctx, read); err == nil {
				read, pause = on, 10*time.Millisecond
			}
		}
		switch {
		case ctx.Err() != nil:
			return State{}, fmt.Errorf("lease: job %s: change under way: %w", c.Job, ctx.Err())
		case errors.Is(err, ErrChanged):
		case errors.Is(err, ErrDeposed), errors.Is(err, ErrLost), errors.Is(err, ErrCorrupt):
			return State{}, fmt.Errorf("lease: job %s: %w", c.Job, err)
		default:
			backoff.Sleep(ctx, backoff.Jitter(pause))
			pause = min(2*pause, time.Second)
		}
	}
}

// callWithin bounds a call of the store. One that is not answered is made again: a
// change that waited for it would keep the job from all others.
const callWithin = 5 * time.Second

// bounded is a session whose calls end.
type bounded struct{ WriteSession }

func (b bounded) State(ctx context.Context, job string) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	return b.WriteSession.State(ctx, job)
}

func (b bounded) Commit(ctx context.Context, job string, t Token, read State, s Step) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	return b.WriteSession.Commit(ctx, job, t, read, s)
}

// advance is a change under way.
type advance struct {
	w WriteSession
	Change
	last  Kind      // of step, called for
	since time.Time // since then
}

// gather is how long readers that follow one another are waited for together.
const gather = time.Millisecond

// step carries out what the state calls for, or waits for the readers that stand
// against it, and returns a newer state.
func (a *advance) step(ctx context.Context, read State) (State, error) {
	s, limit := Next(read, a.Wanted), time.Second
	if s.Kind != a.last {
		a.last, a.since = s.Kind, time.Now()
	}
	switch waited := time.Since(a.since); {
	case s.Wait && waited < a.Wait:
		limit = min(limit, a.Wait-waited)
		defer backoff.Sleep(ctx, gather)
	case s.barred(read):
		// As Commit would say, after all that waits to be written. Readers that live
		// let go; those that do not, run out: this ends within the lease time.
		defer backoff.Sleep(ctx, gather)
	default:
		err := a.w.Commit(ctx, a.Job, a.Token, read, s)
		switch {
		case err == nil && a.Observe != nil:
			a.Observe(s, read, time.Since(a.since))
		case err != nil && !errors.Is(err, ErrReaders):
			return State{}, err
		}
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	on, err := a.w.Await(waiting, a.Job, read.Revision)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return State{}, ErrChanged // or what should tell of changes has fallen silent: read anew
	}
	return on, err
}
