package assigner

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// DrainTask implements AdminService. It returns when the store has the task
// draining and owning nothing; when that cannot be done in time it is taken back, and
// the history says so.
func (v adminService) DrainTask(ctx context.Context, m *slicerv1.DrainTaskRequest) (*slicerv1.DrainTaskResponse, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	stamp, err := v.stamp(ctx, m.GetWho(), m.GetWhy(), m.GetPeer())
	if err != nil {
		return nil, statusOf(err)
	}
	job, home, err := v.a.find(ctx, m.GetJob())
	if err != nil {
		return nil, statusOf(err)
	}
	r := v.a.lookup(m.GetJob())
	if r == nil {
		return nil, statusOf(fmt.Errorf("%w: job %s is not known here yet", generate.ErrNotPreferred, m.GetJob()))
	}
	r.tell(func(c *generate.Core, now generate.Now) {
		if frozen := c.View(now).Vanished(); frozen > 0 { // it does not know whom it could give slices to
			err = status.Errorf(codes.FailedPrecondition, "task %s is as before: the assigner itself has frozen the job for %s, since a large part of the tasks fell silent at once; slicerctl unfreeze lifts that",
				m.GetTask(), frozen.Round(time.Second))
			return
		}
		err = c.Drain(now, m.GetTask(), m.GetUndo())
	})
	if err != nil {
		return nil, statusOf(fmt.Errorf("job %s: %w", m.GetJob(), err))
	}
	within, cancel := context.WithTimeout(ctx, patience(ctx))
	defer cancel()
	for {
		var g assignment.Generation
		var ok, preferred bool
		var turn chan struct{}
		r.ask(func(c generate.View) {
			g, ok = c.Drained(m.GetTask(), m.GetUndo())
			preferred, turn = c.IsPreferred(), r.turn
		})
		switch {
		case ok:
			v.noteDrain(ctx, job, home, m, "", stamp)
			return &slicerv1.DrainTaskResponse{Generation: int64(g)}, nil
		case !preferred:
			return nil, statusOf(fmt.Errorf("%w: job %s went to another assigner meanwhile", generate.ErrNotPreferred, m.GetJob()))
		}
		select {
		case <-turn:
		case <-within.Done():
			g, err := v.lastLook(ctx, job, home, r, m, stamp)
			if err != nil {
				return nil, err
			}
			return &slicerv1.DrainTaskResponse{Generation: int64(g)}, nil
		}
	}
}

// noteDrain puts a drain into the history, with what else there is to say of it. That
// it cannot be noted does not undo it.
func (v adminService) noteDrain(ctx context.Context, job store.Job, home *shelf, m *slicerv1.DrainTaskRequest, more string, stamp store.Stamp) {
	o := order{action: "drain " + m.GetTask() + more, apply: func(*store.Controls, store.Stamp) (string, error) { return "", nil }}
	if m.GetUndo() {
		o.action = "undo " + o.action
	}
	if _, _, err := v.lay(ctx, job, home, o, stamp); err != nil {
		v.a.log.Warn("drain not noted in the history", "job", job.Config.Name, "task", m.GetTask(), "error", err)
	}
}

// lastLook is taken at a drain whose time is over: what is not stored by now is taken
// back, and the error says why.
func (v adminService) lastLook(ctx context.Context, job store.Job, home *shelf, r *runner, m *slicerv1.DrainTaskRequest, stamp store.Stamp) (g assignment.Generation, err error) {
	if v.a.ctx.Err() != nil {
		return 0, errClosing
	}
	why, ok := "the assignment has not changed yet", false
	r.tell(func(c *generate.Core, now generate.Now) {
		seen := c.View(now)
		if g, ok = seen.Drained(m.GetTask(), m.GetUndo()); ok {
			return
		}
		if h := seen.Holding(); h != "" {
			why = h
		}
		// An error says that the task has gone meanwhile: all the better.
		_ = c.Drain(now, m.GetTask(), !m.GetUndo())
	})
	// It is noted also when the caller has given up.
	noting, cancel := context.WithTimeout(v.a.ctx, answerBefore/2)
	defer cancel()
	if ok {
		v.noteDrain(noting, job, home, m, "", stamp)
		return g, nil
	}
	done := "drained"
	if m.GetUndo() {
		done = "undrained"
	}
	err = status.Errorf(codes.FailedPrecondition, "job %s: task %s could not be %s and is as before: %s", m.GetJob(), m.GetTask(), done, why)
	if ctx.Err() != nil {
		err = statusOf(ctx.Err()) // nobody hears it
	}
	stamp.Why = assignment.Clip(why, store.MaxWhy)
	v.noteDrain(noting, job, home, m, ": not done, taken back", stamp)
	return 0, err
}
