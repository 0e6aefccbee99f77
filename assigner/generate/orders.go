package generate

import (
	"fmt"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// Operators' orders come with the job from the store: store.Controls. A freeze by
// order holds all rounds but those that carry out an order given since: restricted
// ones, in which nothing else changes. When the assigner itself has frozen the job
// because its tasks fell silent, orders wait too: it does not know whom it could
// give slices to.

// Controls are the orders in force, as far as is known here. Not to be changed.
func (c *Core) Controls() store.Controls { return c.overrides.controls }

// obey takes in the orders. What was decided under others is decided anew.
func (c *Core) obey(l Loaded) {
	before := c.overrides.controls
	c.overrides.controls, c.overrides.target = l.Controls, nil
	c.overrides.seeFreeze(c.now.Mono)
	if c.overrides.controls.Version == before.Version {
		if l.Controls.Rollback != nil {
			c.overrides.target = l.Target
		}
		return
	}
	c.overrides.void, c.overrides.voidWhy = 0, ""
	if r := c.overrides.controls.Rollback; r != nil {
		if c.overrides.target = l.Target; c.overrides.target == nil {
			c.overrides.void, c.overrides.voidWhy = r.Order, fmt.Sprintf("generation %d cannot be read: %v", r.Generation, l.NoTarget)
		}
	}
	if !c.isPreferred() {
		return
	}
	if c.lead.mine && c.table != nil && c.overrides.controls.Thaws > before.Thaws {
		c.table.Thaw(c.now.Mono)
		c.listen()
	}
	if !c.overrides.controls.Same(&before) {
		c.say(levelInfo, "orders changed", "order", c.overrides.controls.Version, "frozen", c.overrides.controls.Freeze != nil, "pins", len(c.overrides.controls.Pins),
			"excluded", len(c.overrides.controls.Exclude), "rollback", c.overrides.controls.Rollback != nil)
		c.sched.hurry, c.sched.holdUntil = ReasonOrder, 0
	}
	if p := c.pending; p != nil {
		c.pending = nil
		c.sched.again(c.now.Mono, p)
	}
}

func owns(a *assignment.Assignment, pos int) bool {
	return slices.Contains(a.Columns().Owners, uint32(pos))
}

// pinned reports whether a task, and it alone, owns a range that ends where slices end.
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
	c.overrides.void, c.overrides.voidWhy = d.controls.Rollback.Order, why
	c.say(levelError, "order cannot be carried out", "order", c.overrides.void, "reason", why)
	r.Skipped, r.Label = why, labelOrder
	c.finish(r)
	d.Out.State = d.in.State
	c.complete(d)
}

// Obeyed reports whether the stored assignment has an order carried out, and which
// generation that is; otherwise why not, or "" when it is being done. Final says
// that waiting does not help: it takes another order, or a task that returns.
func (c *Core) Obeyed(order int64) (g assignment.Generation, done bool, why string, final bool) {
	g = generation(c.store.newest)
	switch {
	case c.overrides.controls.Version < order:
		return g, false, "", false
	case c.overrides.void == order:
		return g, false, c.overrides.voidWhy, true
	case c.overrides.controls.Rollback != nil && c.overrides.controls.Rollback.Order == order:
		return g, false, c.Holding(), false
	case c.store.job.Config.Mode == assignment.Consistent && c.isPreferred() && c.tenure.inForce < g:
		return g, false, "", false
	}
	if c.store.newest == nil {
		return g, true, "", false
	}
	for _, x := range c.overrides.controls.Exclude {
		if pos, ok := c.store.newest.Position(x.Task); x.Order == order && ok && owns(c.store.newest, pos) {
			return g, false, c.Holding(), false
		}
	}
	for _, p := range c.overrides.controls.Pins {
		if p.Order != order {
			continue
		}
		switch t, why, soon := c.owner(p.Task); {
		case why != "":
			return g, false, fmt.Sprintf("task %s %s; the keys go there as soon as it may own slices", p.Task, why), !soon
		case !pinned(c.store.newest, p.Slice, t):
			return g, false, c.Holding(), false
		}
	}
	return g, true, "", false
}

// owner finds a task that may own slices, or says why it may not, and whether that may
// be over in a moment.
func (c *Core) owner(name string) (t assignment.Task, why string, soon bool) {
	if c.overrides.controls.Excludes(name) != nil {
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

// members is how a job's table of tasks decides.
func members(c assignment.JobConfig) membership.Config {
	c = c.WithDefaults() // of a job that is not known yet
	return membership.Config{HeartbeatTimeout: c.HeartbeatTimeout, Freeze: c.Freeze, Damping: c.Damping}
}

// maxNews is how many events are told of in the history.
const maxNews = 8

// Vanished is for how long the assigner itself has kept the job frozen because a
// large part of its tasks fell silent at once, 0 when it does not.
func (c *Core) Vanished() time.Duration {
	if !c.Frozen() {
		return 0
	}
	d, _ := c.table.Frozen()
	return max(d, time.Millisecond)
}
