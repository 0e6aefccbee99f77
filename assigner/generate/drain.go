package generate

import (
	"errors"
	"fmt"

	"github.com/slicer-project/slicer/assignment"
)

// ErrNotPreferred: another assigner takes the job's decisions, or nobody does.
var ErrNotPreferred = errors.New("not preferred for the job")

// Drain has a task give up its slices, or with undo lets it have some again. It
// takes effect, and lasts, once Drained says so.
func (c *Core) Drain(now Now, task string, undo bool) error {
	c.tick(now)
	if !c.isPreferred() || !c.mine || c.table == nil {
		return fmt.Errorf("%w: %s", ErrNotPreferred, c.Holding())
	}
	f := c.table.Drain
	if undo {
		f = c.table.Undrain
	}
	err := f(c.now.Mono, task)
	c.listen()
	if err == nil && c.frozenByOrder() {
		c.hurry, c.holdUntil = ReasonOrder, 0
	}
	return err
}

// Drained says whether the stored assignment has a task draining and owning
// nothing, or with undo not draining, and what its generation is. In consistent
// mode that generation is in force, so that the task may go without anybody having
// to wait for its lease.
func (c *Core) Drained(task string, undo bool) (assignment.Generation, bool) {
	if c.stored == nil {
		return 0, false
	}
	g := c.stored.Generation()
	if c.job.Config.Mode == assignment.Consistent && c.tenure.inForce < g {
		return g, false
	}
	pos, ok := c.stored.Position(task)
	if !ok {
		// It has never been given anything, or has gone.
		return g, true
	}
	if draining := c.stored.Task(pos).State == assignment.TaskDraining; undo {
		return g, !draining
	} else if !draining {
		return g, c.stored.Task(pos).State == assignment.TaskDead
	}
	for _, o := range c.stored.Columns().Owners {
		if int(o) == pos {
			return g, false
		}
	}
	return g, true
}
