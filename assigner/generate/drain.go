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
	if !c.lead.isPreferred() || !c.lead.mine || c.members.table == nil {
		return fmt.Errorf("%w: %s", ErrNotPreferred, View{c}.Holding())
	}
	f := c.members.table.Drain
	switch drained, _ := c.members.table.DrainedByOrder(task); {
	case undo:
		f = c.members.table.Undrain
	case !drained && c.members.table.Has(task) && len(c.overrides.controls.Exclude) > 0 && !c.overrides.others(c.members.table.Tasks(), task):
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
func (o *overrides) others(tasks []assignment.Task, task string) bool {
	return slices.ContainsFunc(o.mayOwn(tasks), func(t assignment.Task) bool {
		return t.Name != task && t.State == assignment.TaskRunning
	})
}
