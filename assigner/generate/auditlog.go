package generate

import (
	"errors"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment/store"
)

// Audit asks for something that the assigner has done to a job by itself to be put
// into the history, as orders are. It ends with Audited.
type Audit struct {
	// Action is what was done, and Why why, in words.
	Action, Why string
	// Lifts is the number of the freeze or drain by order that ends with it, 0 if none
	// does. When that is not in force any more there is nothing to be done.
	Lifts int64
}

// What the assigner does by itself.
const (
	froze   = "freeze by the assigner itself"
	thawed  = "end of the assigner's own freeze"
	elapsed = "end of the freeze"
)

// maxAuditLog is how many wait for the store; the oldest make way.
const maxAuditLog = 16

// Audited takes in what came of an Audit.
func (c *Core) Audited(now Now, n Audit, err error) {
	c.tick(now)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		// Rounds do not wait for it.
		c.overrides.auditAt = c.now.Mono + c.backoff(c.overrides.auditFailures, 100*time.Millisecond, 30*time.Second)
		c.overrides.auditFailures++
		c.say(levelWarn, "not noted in the history", "action", n.Action, "error", err.Error())
		return
	}
	c.overrides.auditFailures, c.store.loadDue = 0, true // the overrides are of another version
	if n.Lifts != 0 {
		c.overrides.auditAt = c.now.Mono + holdFor // by then it is known here
	} else if len(c.overrides.auditLog) > 0 && c.overrides.auditLog[0] == n {
		c.overrides.auditLog = c.overrides.auditLog[1:]
	}
}

// remember notes a freeze that the assigner itself has applied to the job, or lifted.
// What an operator has lifted is noted as the order.
func (o *overrides) remember(e membership.Event) {
	n := Audit{Why: e.Reason}
	switch {
	case e.Kind == membership.Frozen:
		n.Action = froze
	case e.Kind == membership.Thawed && e.Reason != membership.ByOperator:
		n.Action = thawed
	default:
		return
	}
	o.auditLog = append(o.auditLog, n)
	o.auditLog = o.auditLog[max(0, len(o.auditLog)-maxAuditLog):]
}

// seeFreeze notes since when a freeze by order is known here. Its time counts from then
// on, by the clock that never jumps, so that no wall clock that is wrong ends it: not
// that of the assigner that took the order, nor this one's. An assigner that starts
// anew counts from its start.
func (o *overrides) seeFreeze(now time.Duration) {
	order := int64(0)
	if f := o.inForce.Freeze; f != nil {
		order = f.Order
	}
	if order != o.freezeOrder {
		o.freezeOrder, o.freezeSeen = order, now
	}
}

// audit is what is to be noted next, and from when on. The end of a freeze comes before
// the round that it lets happen.
func (o *overrides) audit(m *members) (n Audit, at time.Duration, ok bool) {
	f := o.inForce.Freeze
	if len(o.auditLog) > 0 {
		return o.auditLog[0], o.auditAt, true
	}
	for _, d := range o.inForce.Drains {
		if m.table == nil {
			break
		}
		if why := m.table.Ended(d.Task, d.Incarnation); why != "" {
			return Audit{Action: "end of the drain of " + d.Task, Why: why, Lifts: d.Order}, o.auditAt, true
		}
	}
	if f == nil || f.Until.IsZero() {
		return Audit{}, 0, false
	}
	last := f.Until.Sub(f.When)
	return Audit{Action: elapsed, Why: fmt.Sprintf("its %s have passed", last), Lifts: f.Order}, max(o.auditAt, o.freezeSeen+last), true
}
