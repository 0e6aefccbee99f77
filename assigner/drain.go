package assigner

import (
	"context"
	"slices"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// DrainTask implements AdminService. It returns when the store has the task
// draining and owning nothing; when that cannot be done in time it is taken back.
func (v adminService) DrainTask(ctx context.Context, m *slicerv1.DrainTaskRequest) (_ *slicerv1.DrainTaskResponse, err error) {
	action := "drain"
	if m.GetUndo() {
		action = "undrain"
	}
	ctx, span := orderSpan(ctx, v.a.cfg.Tracer, m.GetJob(), action)
	defer func() { span.End(err) }()
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c := v.caller(ctx)
	stamp, err := v.stamp(c, m.GetWho(), m.GetWhy(), m.GetPeer())
	if err != nil {
		return nil, statusOf(err)
	}
	job, home, err := v.find(ctx, c, assignment.Order, m.GetJob())
	if err != nil {
		return nil, statusOf(err)
	}
	o := v.drainOrder(m.GetJob(), m.GetTask())
	if m.GetUndo() {
		o = v.undrainOrder(m.GetJob(), m.GetTask())
	}
	resp, err := v.give(ctx, job, home, o, stamp)
	if err != nil {
		return nil, err
	}
	return &slicerv1.DrainTaskResponse{Generation: resp.Generation}, nil
}

// drainable is the incarnation of a task that a drain would be of, see generate.View.
func (v adminService) drainable(job, task string, undo bool) (incarnation uint64, err error) {
	r := v.a.lookup(job)
	if r == nil {
		return 0, generate.ErrNotPreferred
	}
	r.ask(func(c generate.View) { incarnation, err = c.Drainable(task, undo) })
	return incarnation, err
}

func (v adminService) drainOrder(job, task string) order {
	return order{action: "drain " + task, edit: func(c *store.Overrides, s store.Stamp) (string, error) {
		incarnation, err := v.drainable(job, task, false)
		if err != nil {
			return "", err
		}
		at, there := c.DrainOf(task)
		switch {
		case there && c.Drains[at].Incarnation == incarnation:
			return "it is drained already, by " + c.Drains[at].By(), nil
		case there:
			c.Drains = slices.Delete(c.Drains, at, at+1) // it has ended
		case len(c.Drains) == store.MaxDrains:
			return "", tooMany("drained tasks", store.MaxDrains)
		}
		c.Drains = slices.Insert(c.Drains, at, store.Drain{Stamp: s, Order: c.Version, Task: task, Incarnation: incarnation})
		return "", nil
	}, revert: (*store.Overrides).Lift, until: func(c generate.View) bool {
		a := c.Stored()
		return a == nil || generate.Drained(a, task)
	}}
}

func (v adminService) undrainOrder(job, task string) order {
	var lifted *store.Drain
	return order{action: "undo drain " + task, edit: func(c *store.Overrides, _ store.Stamp) (string, error) {
		if _, err := v.drainable(job, task, true); err != nil {
			return "", err
		}
		lifted = nil
		at, there := c.DrainOf(task)
		if !there {
			return "it was not drained", nil
		}
		d := c.Drains[at]
		lifted, c.Drains = &d, slices.Delete(c.Drains, at, at+1)
		return "lifted the drain by " + d.By(), nil
	}, revert: func(c *store.Overrides, _ int64) bool {
		at, there := c.DrainOf(task)
		if lifted == nil || there || len(c.Drains) == store.MaxDrains {
			return false
		}
		c.Drains = slices.Insert(c.Drains, at, *lifted)
		return true
	}, until: func(c generate.View) bool {
		a := c.Stored()
		return a == nil || generate.Undrained(a, task)
	}}
}
