package generate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
)

// ErrNotPreferred: another assigner takes the job's decisions, or nobody does.
var ErrNotPreferred = errors.New("not preferred for the job")

// Drain has a task give up its slices, or with undo lets it have some again. It
// takes effect, and lasts, once Drained says so.
func (c *Core) Drain(now Now, task string, undo bool) error {
	c.tick(now)
	if !c.isPreferred() || !c.lead.mine || c.table == nil {
		return fmt.Errorf("%w: %s", ErrNotPreferred, c.Holding())
	}
	f := c.table.Drain
	switch drained, _ := c.table.DrainedByOrder(task); {
	case undo:
		f = c.table.Undrain
	case !drained && c.table.Has(task) && len(c.overrides.controls.Exclude) > 0 && !c.others(task):
		return fmt.Errorf("%w: no other task is running that could take the slices of %s and is not excluded", membership.ErrState, task)
	}
	err := f(c.now.Mono, task)
	c.listen()
	if err == nil && c.overrides.frozen() {
		c.sched.hurry, c.sched.holdUntil = ReasonOrder, 0
	}
	return err
}

// others reports whether any other task is running that may own slices.
func (c *Core) others(task string) bool {
	return slices.ContainsFunc(c.overrides.mayOwn(c.table.Tasks()), func(t assignment.Task) bool {
		return t.Name != task && t.State == assignment.TaskRunning
	})
}

// Drained reports whether the stored assignment has a task draining and owning
// nothing, or with undo not draining, and what its generation is. In consistent
// mode that generation is in force, so that the task may go without anybody having
// to wait for its lease.
func (c *Core) Drained(task string, undo bool) (assignment.Generation, bool) {
	if c.store.newest == nil {
		return 0, false
	}
	g := c.store.newest.Generation()
	if c.store.job.Config.Mode == assignment.Consistent && c.tenure.inForce < g {
		return g, false
	}
	pos, ok := c.store.newest.Position(task)
	if !ok {
		// It has never been given anything, or has gone.
		return g, true
	}
	if draining := c.store.newest.Task(pos).State == assignment.TaskDraining; undo {
		return g, !draining
	} else if !draining {
		return g, c.store.newest.Task(pos).State == assignment.TaskDead
	}
	for _, o := range c.store.newest.Columns().Owners {
		if int(o) == pos {
			return g, false
		}
	}
	return g, true
}
