package generate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
)

// ErrNotPreferred: another assigner takes the job's decisions, or none does.
var ErrNotPreferred = errors.New("not preferred for the job")

// Drainable is the incarnation of a task that a drain would be of, or with undo the one
// whose drain could be lifted. Only the assigner that decides knows it.
func (v View) Drainable(task string, undo bool) (incarnation uint64, err error) {
	tasks := v.Tasks()
	i := slices.IndexFunc(tasks, func(s TaskStatus) bool { return s.Task.Name == task })
	switch {
	case !v.c.inCharge() || v.c.members.table == nil:
		return 0, fmt.Errorf("%w: %s", ErrNotPreferred, v.Holding())
	case v.Vanished() > 0: // it is not known which tasks could take its slices
		return 0, fmt.Errorf("%w: task %s is as before: the assigner itself has frozen the job for %s, since a large part of the tasks fell silent at once; slicerctl unfreeze lifts that",
			membership.ErrState, task, v.Vanished().Round(time.Second))
	case i < 0:
		return 0, fmt.Errorf("%w: %s", membership.ErrUnknown, task)
	}
	o, t := &v.c.overrides, tasks[i].Task
	switch {
	case t.State == assignment.TaskDead:
		return 0, fmt.Errorf("%w: %s is dead", membership.ErrState, task)
	case undo && t.State == assignment.TaskDraining && !o.drained(t):
		return 0, fmt.Errorf("%w: %s drains because it is about to end", membership.ErrState, task)
	case undo, t.State == assignment.TaskDraining, o.others(v.c.members.table.Tasks(), task):
		return t.Incarnation, nil
	case len(o.inForce.Exclude) > 0:
		return 0, fmt.Errorf("%w: no other task is running that could take the slices of %s and is not excluded", membership.ErrState, task)
	}
	return 0, fmt.Errorf("%w: no other task is running that could take the slices of %s", membership.ErrState, task)
}

// others reports whether any other task is running that may own slices.
func (o *overrides) others(tasks []assignment.Task, task string) bool {
	return slices.ContainsFunc(o.mayOwn(tasks), func(t assignment.Task) bool {
		return t.Name != task && t.State == assignment.TaskRunning
	})
}

// Drained reports whether an assignment has a task draining and owning nothing, or dead.
// One that it does not name has never been given anything, or has gone.
func Drained(a *assignment.Assignment, task string) bool {
	pos, ok := a.Position(task)
	switch {
	case !ok:
		return true
	case a.Task(pos).State != assignment.TaskDraining:
		return a.Task(pos).State == assignment.TaskDead
	}
	return !owns(a, pos)
}

// Undrained reports whether an assignment does not have a task draining.
func Undrained(a *assignment.Assignment, task string) bool {
	pos, ok := a.Position(task)
	return !ok || a.Task(pos).State != assignment.TaskDraining
}
