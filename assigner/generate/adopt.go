package generate

import (
	"fmt"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// Overrides come with the job from the store: store.Overrides. A freeze by an operator
// holds all rounds but those that carry out an order given since: restricted ones, in
// which nothing else changes. When the assigner itself has frozen the job because its
// tasks fell silent, orders wait too: it does not know to which tasks it could give
// slices.

// adopt takes in the overrides. What was decided under others is decided anew.
func (c *Core) adopt(l Loaded) {
	before := c.overrides.inForce
	c.overrides.inForce, c.overrides.target = l.Overrides, nil
	c.overrides.seeFreeze(c.now.Mono)
	if c.overrides.inForce.Version == before.Version {
		if l.Overrides.Rollback != nil {
			c.overrides.target = l.Target
		}
		return
	}
	c.overrides.void, c.overrides.voidWhy = 0, ""
	if len(l.Overrides.Drains)+len(c.members.drains) > 0 {
		c.members.drain(l.Overrides.Drains)
		c.listen()
	}
	if r := c.overrides.inForce.Rollback; r != nil {
		if c.overrides.target = l.Target; c.overrides.target == nil {
			c.overrides.void, c.overrides.voidWhy = r.Order, fmt.Sprintf("generation %d cannot be read: %v", r.Generation, l.NoTarget)
		}
	}
	if !c.lead.isPreferred() {
		return
	}
	if c.lead.mine && c.members.table != nil && c.overrides.inForce.Thaws > before.Thaws {
		c.members.table.Thaw(c.now.Mono)
		c.listen()
	}
	if c.overrides.frozen() && c.sched.changed {
		c.sched.hurry, c.sched.holdUntil = ReasonOrder, 0 // it may be a drain
	}
	if !c.overrides.inForce.Same(&before) {
		c.say(levelInfo, "overrides changed", "order", c.overrides.inForce.Version, "frozen", c.overrides.inForce.Freeze != nil, "pins", len(c.overrides.inForce.Pins),
			"excluded", len(c.overrides.inForce.Exclude), "rollback", c.overrides.inForce.Rollback != nil)
		c.sched.hurry, c.sched.holdUntil = ReasonOrder, 0
	}
	if p := c.rounds.pending; p != nil {
		c.rounds.pending = nil
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
	c.overrides.void, c.overrides.voidWhy = d.overrides.Rollback.Order, why
	c.say(levelError, "order cannot be carried out", "order", c.overrides.void, "reason", why)
	r.Skipped, r.Label = why, labelOrder
	c.rounds.finish(r)
	d.Out.State = d.in.State
	c.complete(d)
}

// maxTaskChanges is how many events are told of in the history.
const maxTaskChanges = 8
