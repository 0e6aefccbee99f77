package generate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/loadbalance"
)

// overrides are those of operators, and what of them and of the assigner's own freezes is
// to be noted in the history.
type overrides struct {
	*env
	inForce     store.Overrides
	target      *assignment.Assignment // of the rollback that is to be carried out, nil if none
	void        int64                  // number of an order that cannot be carried out
	voidWhy     string
	taskChanges []string // what has happened to tasks since the last round

	auditLog      []Audit       // see auditlog.go
	auditAt       time.Duration // no attempt before that
	auditFailures int           // in a row
	freezeOrder   int64         // of the operator's freeze that is in force, 0 if none is
	freezeSeen    time.Duration // since when it is known here
}

// frozen reports whether an operator has frozen the job: a freeze whose time has
// passed ends when that is noted in the store.
func (o *overrides) frozen() bool { return o.inForce.Freeze != nil }

// frozenBy is which operator has frozen the job, until when and why, in words.
func (o *overrides) frozenBy() string {
	f := o.inForce.Freeze
	s := "frozen by " + f.By()
	if !f.Until.IsZero() {
		s += " until " + f.Until.UTC().Format(time.RFC3339)
	}
	if f.Why != "" {
		s += ": " + f.Why
	}
	return s
}

// since is the number of the freeze that holds, 0 if none by order does: a frozen
// job changes only for orders that were given later.
func (o *overrides) since() int64 {
	if !o.frozen() {
		return 0
	}
	return o.inForce.Freeze.Order
}

// goesBack reports whether there is a rollback to carry out.
func (o *overrides) goesBack(newest *assignment.Assignment) bool {
	r := o.inForce.Rollback
	return r != nil && o.target != nil && newest != nil && r.Order != o.void
}

// mayOwn is the table of tasks with those that are excluded as if they were not
// ready yet.
func (o *overrides) mayOwn(tasks []assignment.Task) []assignment.Task {
	if len(o.inForce.Exclude) == 0 {
		return tasks
	}
	tasks = slices.Clone(tasks)
	for i := range tasks {
		if tasks[i].State == assignment.TaskRunning && o.inForce.Excludes(tasks[i].Name) != nil {
			tasks[i].State = assignment.TaskStarting
		}
	}
	return tasks
}

// pins are the pinned ranges; of a frozen job those ordered since.
func (o *overrides) pins(frozen bool) (fixed []loadbalance.Fixed) {
	for _, p := range o.inForce.Pins {
		if !frozen || p.Order > o.since() {
			fixed = append(fixed, loadbalance.Fixed{Slice: p.Slice, Task: p.Task})
		}
	}
	return fixed
}

// away are the tasks that are to own nothing although the job is frozen.
func (o *overrides) away(table *membership.Table) map[string]bool {
	away := make(map[string]bool)
	for _, x := range o.inForce.Exclude {
		if x.Order > o.since() {
			away[x.Task] = true
		}
	}
	for _, t := range table.Tasks() {
		if o.drained(t) {
			away[t.Name] = true
		}
	}
	return away
}

// drained reports whether an operator has drained this incarnation.
func (o *overrides) drained(t assignment.Task) bool {
	at, ok := o.inForce.DrainOf(t.Name)
	return ok && o.inForce.Drains[at].Incarnation == t.Incarnation
}

// ordered reports whether any of those orders is yet to be carried out that count while
// the job is frozen.
func (o *overrides) ordered(table *membership.Table, newest *assignment.Assignment) bool {
	away := o.away(table)
	now := make(map[string]assignment.Task)
	for _, t := range table.Tasks() {
		now[t.Name] = t
	}
	for pos, t := range newest.Tasks() {
		if x := now[t.Name]; t.State == assignment.TaskDraining && t.Same(x) && x.State != assignment.TaskDraining && x.State != assignment.TaskDead {
			return true // the drain was lifted
		}
		if away[t.Name] && (owns(newest, pos) || t.State == assignment.TaskRunning && o.inForce.Excludes(t.Name) == nil) {
			return true
		}
	}
	running := o.mayOwn(table.Tasks())
	for _, f := range o.pins(true) {
		i := slices.IndexFunc(running, func(t assignment.Task) bool { return t.Name == f.Task && t.State == assignment.TaskRunning })
		if i >= 0 && !pinned(newest, f.Slice, running[i]) {
			return true
		}
	}
	return false
}

// standing says why a task is given no slices, or is empty.
func (o *overrides) standing(s *membership.Status) string {
	x := o.inForce.Excludes(s.Task.Name)
	switch {
	case x != nil && x.Why != "":
		return fmt.Sprintf("excluded by %s: %s", x.By(), x.Why)
	case x != nil:
		return "excluded by " + x.By()
	case s.Damped > 0:
		return fmt.Sprintf("damped for %s: it has failed again and again", s.Damped.Round(time.Second))
	case s.Task.State == assignment.TaskStarting:
		return "starting: it has not said that it is ready"
	}
	return ""
}

// noteTaskChange notes what has happened to a task, for the history.
func (o *overrides) noteTaskChange(e membership.Event) {
	if e.Task != "" && e.Kind != membership.Refused && len(o.taskChanges) <= maxTaskChanges {
		o.taskChanges = append(o.taskChanges, e.Task+" "+string(e.Kind))
	}
}

// takeTaskChanges returns what has happened to tasks since the last round, in words.
func (o *overrides) takeTaskChanges() string {
	s := strings.Join(o.taskChanges[:min(len(o.taskChanges), maxTaskChanges)], ", ")
	if len(o.taskChanges) > maxTaskChanges {
		s += " and more"
	}
	o.taskChanges = nil
	return s
}
