package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
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

// Advance carries out, one after the other, the steps that the records call for,
// until none is. It returns the records as they are then. It can be interrupted
// at any point, and by whatever, and anybody with the job lease can go on.
//
// An error that matches ErrDeposed says that the job lease is lost; other errors
// of the store are waited out, until ctx ends.
func Advance(ctx context.Context, w WriteSession, c Change) (State, error) {
	var last Step // called for since
	var since time.Time
	pause := 10 * time.Millisecond
	for {
		asked := time.Now()
		read, err := w.State(ctx, c.Job)
		cost := min(time.Since(asked), 50*time.Millisecond)
		if err == nil {
			s := Next(read, c.Wanted)
			if s.Kind == Idle {
				return read, nil
			}
			if s.Kind != last.Kind {
				last, since = s, time.Now()
			}
			if s.Wait && time.Since(since) < c.Wait {
				err = changed(ctx, w, c.Job, read.Revision, c.Wait-time.Since(since))
				sleep(ctx, cost) // many readers come one after the other: at most half of the time goes into looking
			} else if s.barred(read) {
				err = ErrReaders // as Commit would say, after all that waits to be written
			} else if err = w.Commit(ctx, c.Job, c.Token, read, s); err == nil {
				if c.Observe != nil {
					c.Observe(s, read, time.Since(since))
				}
				pause = 10 * time.Millisecond
			}
		}
		switch {
		case ctx.Err() != nil:
			return State{}, fmt.Errorf("lease: job %s: change under way: %w", c.Job, ctx.Err())
		case err == nil, errors.Is(err, ErrChanged):
		case errors.Is(err, ErrReaders):
			// Those who live let go; those who do not, run out: this ends within the lease time.
			if err := changed(ctx, w, c.Job, read.Revision, time.Second); err == nil {
				sleep(ctx, cost)
				continue
			}
		case errors.Is(err, ErrDeposed), errors.Is(err, ErrLost), errors.Is(err, ErrCorrupt):
			return State{}, fmt.Errorf("lease: job %s: %w", c.Job, err)
		default:
			sleep(ctx, jitter(pause))
			pause = min(2*pause, time.Second)
		}
	}
}

// changed waits for a change, for a bounded time.
func changed(ctx context.Context, w WriteSession, job string, since int64, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := w.Changed(ctx, job, since)
	if ctx.Err() != nil {
		return nil
	}
	return err
}
