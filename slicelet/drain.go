package slicelet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber"
)

const (
	// quietTime is how long no request may have arrived for a drain to end.
	quietTime = 500 * time.Millisecond
	// drainPoll is how often a drain looks for requests.
	drainPoll = 100 * time.Millisecond
	// drainGrace is how long a drain waits for an assignment that shows the task as
	// draining if it owns nothing anyway: there may be nothing to write.
	drainGrace = 3 * time.Second
	// loneTime is how long the newest assignment must have shown no task that could take
	// the slices for a drain to give up: time for a successor that was started in the
	// same moment to be seen.
	loneTime = 5 * time.Second
)

// ErrAlone: a drain has ended since there is no task to move the slices to.
var ErrAlone = errors.New("alone in the job")

// DrainError says what a drain was waiting for when it ended.
type DrainError struct {
	Task string
	// Waiting says in words what for.
	Waiting string
	// Slices is how many slices the task still owns.
	Slices int
	// Stragglers are clients and tasks that do not know yet that the slices have
	// moved, at most 16.
	Stragglers []string
	// Err is why the wait ended: the context's error, ErrAlone, or ErrClosed.
	Err error
}

func (e *DrainError) Error() string {
	text := fmt.Sprintf("drain of task %q: %v while waiting for %s", e.Task, e.Err, e.Waiting)
	if len(e.Stragglers) > 0 {
		text += ": " + strings.Join(e.Stragglers, ", ")
	}
	return text
}

func (e *DrainError) Unwrap() error { return e.Err }

// Drain moves the task's slices to others. It returns nil when the task owns
// nothing any more, all connected clients have acknowledged that, no request has
// arrived for half a second, and every listener has been told of the last departure
// and has returned. The task goes on serving until then, and is not assigned anything
// again; there is no way back but a new Slicelet. If ctx ends
// first, the error is a *DrainError. It is one that matches ErrAlone once the newest
// assignment has shown for 5 s no other task that is running or starting: there is
// nothing to wait for, and the task keeps its slices until it is closed.
func (s *Slicelet) Drain(ctx context.Context) error {
	s.stage.Store(uint32(assignment.TaskDraining))
	notify(s.reportNow)
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	d := drain{me: s.me, began: time.Now()}
	for told := false; ; told = true {
		changed := s.sub.StateChanged()
		waiting := d.look(s.view.Load(), s.sub.State(), s.served(), s.told(), time.Now())
		if waiting == nil {
			s.log.Info("drained", "took", time.Since(d.began))
			return nil
		}
		if !told {
			s.log.Info("draining", "waits_for", waiting.Waiting)
		}
		if waiting.Err == nil {
			select {
			case <-changed:
				continue
			case <-tick.C:
				continue
			case <-ctx.Done():
				waiting.Err = context.Cause(ctx)
			case <-s.stop:
				waiting.Err = ErrClosed
			}
		}
		s.log.Warn("not drained", "slices", waiting.Slices, "error", waiting)
		return waiting
	}
}

// Draining reports whether the task drains: new requests are better sent to others, if these
// own the key or there is none. It still serves.
func (s *Slicelet) Draining() bool { return s.state() == assignment.TaskDraining }

// served counts all requests so far.
func (s *Slicelet) served() uint64 {
	for {
		_, before := s.recorder.newest()
		n := s.meter.total()
		if _, after := s.recorder.newest(); after == before {
			return before.requests + n
		}
		// The meter was emptied in between.
	}
}

// drain is how far one has come, purely.
type drain struct {
	me    assignment.Task
	began time.Time

	moved  assignment.Generation // since which the task has owned nothing; 0 if it owns something
	served uint64
	// quiet is since when clients have known and no request has arrived; zero before.
	quiet time.Time
	// lone is since when there has been no task to move slices to; zero if there is.
	lone time.Time
}

// look returns what is being waited for, nil if nothing is. Its Err is set when
// there is no sense in waiting any longer. That listeners know of a view in which
// the task owns nothing (told) is asked after the view was read.
func (d *drain) look(v *view, st *subscriber.State, served uint64, told bool, now time.Time) *DrainError {
	if served != d.served && !d.quiet.IsZero() {
		d.quiet = now
	}
	d.served = served
	// In consistent mode it loses them after the assignment has moved them.
	e := &DrainError{Task: d.me.Name, Slices: max(len(v.own.entries), len(v.metered.entries))}
	if !d.alone(st.Assignment) {
		d.lone = time.Time{}
	} else if d.lone.IsZero() {
		d.lone = now
	}
	switch {
	case e.Slices > 0:
		d.moved, d.quiet = 0, time.Time{}
		e.Waiting = fmt.Sprintf("its %d slices to be moved away", e.Slices)
		if !d.lone.IsZero() {
			e.Waiting += ", and no other task of the job is running or starting"
			if now.Sub(d.lone) >= loneTime {
				e.Err = ErrAlone
			}
		}
	case !d.acknowledged(st.Assignment) && now.Sub(d.began) < drainGrace:
		e.Waiting = "the assigner to know of it"
	default:
		if d.moved == 0 && st.Assignment != nil {
			d.moved = st.Assignment.Generation()
		}
		switch {
		case st.Status.Converged < d.moved:
			d.quiet = time.Time{}
			e.Waiting = "clients to learn that its slices have moved"
			e.Stragglers = st.Status.Stragglers
		case d.quiet.IsZero() || now.Sub(d.quiet) < quietTime:
			if d.quiet.IsZero() {
				d.quiet = now
			}
			e.Waiting = fmt.Sprintf("a pause of %s in the requests", quietTime)
		case !told:
			e.Waiting = "the listener to return, which is told that the slices have departed"
		default:
			return nil
		}
	}
	if st.Link != subscriber.Distributor && st.Err != nil {
		e.Waiting += fmt.Sprintf(" (no distributor serves: %v)", st.Err)
	}
	return e
}

// alone reports whether the assignment has no other task to move slices to.
func (d *drain) alone(a *assignment.Assignment) bool {
	if a == nil {
		return false
	}
	for _, t := range a.Tasks() {
		if t.Name != d.me.Name && t.State.TakesSlices() {
			return false
		}
	}
	return true
}

// acknowledged reports whether the assignment shows the task as draining.
func (d *drain) acknowledged(a *assignment.Assignment) bool {
	if a == nil {
		return false
	}
	pos, ok := a.Position(d.me.Name)
	return ok && a.Task(pos).Incarnation == d.me.Incarnation && a.Task(pos).State == assignment.TaskDraining
}
