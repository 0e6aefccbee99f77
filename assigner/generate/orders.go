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

// Operators' orders come with the job from the store: store.Controls. A freeze by
// order holds all rounds but those that carry out an order given since: restricted
// ones, in which nothing else changes. When the assigner itself has frozen the job
// because its tasks fell silent, orders wait too: it does not know whom it could
// give slices to.

// Controls are the orders in force, as far as is known here. Not to be changed.
func (c *Core) Controls() store.Controls { return c.controls }

// obey takes in the orders. What was decided under others is decided anew.
func (c *Core) obey(l Loaded) {
	before := c.controls
	c.controls, c.target = l.Controls, nil
	c.seeFreeze()
	if c.controls.Version == before.Version {
		if l.Controls.Rollback != nil {
			c.target = l.Target
		}
		return
	}
	c.void, c.voidWhy = 0, ""
	if r := c.controls.Rollback; r != nil {
		if c.target = l.Target; c.target == nil {
			c.void, c.voidWhy = r.Order, fmt.Sprintf("generation %d cannot be read: %v", r.Generation, l.NoTarget)
		}
	}
	if !c.isPreferred() {
		return
	}
	if c.mine && c.table != nil && c.controls.Thaws > before.Thaws {
		c.table.Thaw(c.now.Mono)
		c.listen()
	}
	if !c.controls.Same(&before) {
		c.say(levelInfo, "orders changed", "order", c.controls.Version, "frozen", c.controls.Freeze != nil, "pins", len(c.controls.Pins),
			"excluded", len(c.controls.Exclude), "rollback", c.controls.Rollback != nil)
		c.hurry, c.holdUntil = ReasonOrder, 0
	}
	if p := c.pending; p != nil {
		c.pending = nil
		c.again(p)
	}
}

// frozenByOrder says whether an operator has the job frozen: a freeze whose time has
// passed ends when that is noted in the store.
func (c *Core) frozenByOrder() bool { return c.controls.Freeze != nil }

// frozenBy says who has.
func (c *Core) frozenBy() string {
	f := c.controls.Freeze
	s := "frozen by " + f.Who
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
func (c *Core) since() int64 {
	if !c.frozenByOrder() {
		return 0
	}
	return c.controls.Freeze.Order
}

// goesBack says whether there is a rollback to carry out.
func (c *Core) goesBack() bool {
	r := c.controls.Rollback
	return r != nil && c.target != nil && c.stored != nil && r.Order != c.void
}

// mayOwn is the table of tasks with those that are excluded as if they were not
// ready yet.
func (c *Core) mayOwn(tasks []assignment.Task) []assignment.Task {
	if len(c.controls.Exclude) == 0 {
		return tasks
	}
	tasks = slices.Clone(tasks)
	for i := range tasks {
		if tasks[i].State == assignment.TaskRunning && c.controls.Excludes(tasks[i].Name) != nil {
			tasks[i].State = assignment.TaskStarting
		}
	}
	return tasks
}

// pins are the pinned ranges; of a frozen job those ordered since.
func (c *Core) pins(frozen bool) (fixed []loadbalance.Fixed) {
	for _, p := range c.controls.Pins {
		if !frozen || p.Order > c.since() {
			fixed = append(fixed, loadbalance.Fixed{Slice: p.Slice, Task: p.Task})
		}
	}
	return fixed
}

// away are the tasks that are to own nothing although the job is frozen.
func (c *Core) away() map[string]bool {
	away := make(map[string]bool)
	for _, x := range c.controls.Exclude {
		if x.Order > c.since() {
			away[x.Task] = true
		}
	}
	for _, t := range c.table.Tasks() {
		if drained, _ := c.table.DrainedByOrder(t.Name); drained {
			away[t.Name] = true
		}
	}
	return away
}

// ordered says whether an order is yet to be carried out of those that count while
// the job is frozen.
func (c *Core) ordered() bool {
	away := c.away()
	for pos, t := range c.stored.Tasks() {
		if _, undrained := c.table.DrainedByOrder(t.Name); undrained && t.State == assignment.TaskDraining {
			return true
		}
		if away[t.Name] && (owns(c.stored, pos) || t.State == assignment.TaskRunning && c.controls.Excludes(t.Name) == nil) {
			return true
		}
	}
	running := c.mayOwn(c.table.Tasks())
	for _, f := range c.pins(true) {
		i := slices.IndexFunc(running, func(t assignment.Task) bool { return t.Name == f.Task && t.State == assignment.TaskRunning })
		if i >= 0 && !pinned(c.stored, f.Slice, running[i]) {
			return true
		}
	}
	return false
}

func owns(a *assignment.Assignment, pos int) bool {
	return slices.Contains(a.Columns().Owners, uint32(pos))
}

// pinned says whether a task, and it alone, owns a range that ends where slices end.
func pinned(a *assignment.Assignment, s assignment.Slice, t assignment.Task) bool {
	for i := a.Find(s.Start); i < a.NumSlices() && a.Slice(i).Start < s.End; i++ {
		at, r := a.Slice(i), a.Replicas(i)
		if at.Start < s.Start || at.End > s.End || r.Len() != 1 || !r.At(0).Same(t) {
			return false
		}
	}
	return true
}

// cannot gives up a rollback that makes no assignment.
func (c *Core) cannot(d *Planned, r Round) {
	why := "it makes no assignment"
	if d.Err != nil {
		why = d.Err.Error()
	}
	c.void, c.voidWhy = d.controls.Rollback.Order, why
	c.say(levelError, "order cannot be carried out", "order", c.void, "reason", why)
	r.Skipped, r.Label = why, labelOrder
	c.finish(r)
	d.Out.State = d.in.State
	c.complete(d)
}

// Obeyed says whether the stored assignment has an order carried out, and which
// generation that is; otherwise why not, or "" when it is being done. Final says
// that waiting does not help: it takes another order, or a task that returns.
func (c *Core) Obeyed(order int64) (g assignment.Generation, done bool, why string, final bool) {
	g = generation(c.stored)
	switch {
	case c.controls.Version < order:
		return g, false, "", false
	case c.void == order:
		return g, false, c.voidWhy, true
	case c.controls.Rollback != nil && c.controls.Rollback.Order == order:
		return g, false, c.Holding(), false
	case c.job.Config.Mode == assignment.Consistent && c.isPreferred() && c.tenure.inForce < g:
		return g, false, "", false
	}
	if c.stored == nil {
		return g, true, "", false
	}
	for _, x := range c.controls.Exclude {
		if pos, ok := c.stored.Position(x.Task); x.Order == order && ok && owns(c.stored, pos) {
			return g, false, c.Holding(), false
		}
	}
	for _, p := range c.controls.Pins {
		if p.Order != order {
			continue
		}
		switch t, why, soon := c.owner(p.Task); {
		case why != "":
			return g, false, fmt.Sprintf("task %s %s; the keys go there as soon as it may own slices", p.Task, why), !soon
		case !pinned(c.stored, p.Slice, t):
			return g, false, c.Holding(), false
		}
	}
	return g, true, "", false
}

// owner finds a task that may own slices, or says why it may not, and whether that may
// be over in a moment.
func (c *Core) owner(name string) (t assignment.Task, why string, soon bool) {
	if c.controls.Excludes(name) != nil {
		return t, "is excluded", false
	}
	for _, s := range c.Tasks(c.now) {
		switch {
		case s.Task.Name != name:
		case s.Task.State == assignment.TaskRunning:
			return s.Task, "", false
		default:
			soon = !c.isPreferred() || s.Task.State == assignment.TaskStarting && s.Damped == 0
			return t, "is " + s.Task.State.String(), soon
		}
	}
	return t, "is not there", true
}

// standing says why a task is given no slices, or is empty.
func (c *Core) standing(s *membership.Status) string {
	x := c.controls.Excludes(s.Task.Name)
	switch {
	case x != nil && x.Why != "":
		return fmt.Sprintf("excluded by %s: %s", x.Who, x.Why)
	case x != nil:
		return "excluded by " + x.Who
	case s.Damped > 0:
		return fmt.Sprintf("damped for %s: it has failed again and again", s.Damped.Round(time.Second))
	case s.Task.State == assignment.TaskStarting:
		return "starting: it has not said that it is ready"
	}
	return ""
}

// members is how a job's table of tasks decides.
func members(c assignment.JobConfig) membership.Config {
	c = c.WithDefaults() // of a job that is not known yet
	return membership.Config{HeartbeatTimeout: c.HeartbeatTimeout, Freeze: c.Freeze, Damping: c.Damping}
}

// maxNews is how many events are told of in the history.
const maxNews = 8

// hear notes what has happened to a task, for the history.
func (c *Core) hear(e membership.Event) {
	if e.Task != "" && e.Kind != membership.Refused && len(c.news) <= maxNews {
		c.news = append(c.news, e.Task+" "+string(e.Kind))
	}
}

// tidings are what has happened to tasks since the last round, in words.
func (c *Core) tidings() string {
	s := strings.Join(c.news[:min(len(c.news), maxNews)], ", ")
	if len(c.news) > maxNews {
		s += " and more"
	}
	c.news = nil
	return s
}

// Vanished is for how long the assigner itself has kept the job frozen because a
// large part of its tasks fell silent at once, 0 when it does not.
func (c *Core) Vanished() time.Duration {
	if !c.Frozen() {
		return 0
	}
	d, _ := c.table.Frozen()
	return max(d, time.Millisecond)
}
