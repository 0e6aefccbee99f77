package ctl

import (
	"context"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// goneWithin bounds the wait for which tasks live: where that is not known, the
// assignment is shown all the same.
const goneWithin = 2 * time.Second

// gone says which tasks of an assignment the job's assigner knows to be dead, or to have
// another process in their place. Where none answers, no task is known to be.
func (c *client) gone(ctx context.Context, a *assignment.Assignment) func(assignment.Task) bool {
	ctx, cancel := context.WithTimeout(ctx, goneWithin)
	defer cancel()
	info, err := call(ctx, c, c.admin.InspectJob, &slicerv1.InspectJobRequest{Job: a.Job()})
	if err != nil || !info.Preferred || info.Generation < int64(a.Generation()) {
		return func(assignment.Task) bool { return false }
	}
	now := make(map[string]*slicerv1.Task, len(info.Tasks))
	for _, s := range info.Tasks {
		now[s.GetTask().GetName()] = s.GetTask()
	}
	return func(t assignment.Task) bool {
		k := now[t.Name]
		return k != nil && (k.Incarnation != t.Incarnation || k.State == slicerv1.TaskState_TASK_STATE_DEAD)
	}
}

// markGone finds out which owners of a key are gone.
func (c *client) markGone(ctx context.Context, v *explainView, k assignment.SliceKey) {
	ctx, cancel := context.WithTimeout(ctx, goneWithin)
	defer cancel()
	a, err := c.fetch(ctx, v.Job)
	if err != nil {
		return
	}
	gone := c.gone(ctx, a)
	for t := range a.Lookup(k).All() {
		for i := range v.Owners {
			v.Owners[i].Gone = v.Owners[i].Gone || v.Owners[i].Task == t.Name && gone(t)
		}
	}
}
