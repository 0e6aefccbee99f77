package generate

import (
	"errors"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment/store"
)

// Note asks for something that the assigner has done to a job by itself to be put
// into the history, as orders are. It ends with Noted.
type Note struct {
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

// maxNotes is how many wait for the store; the oldest make way.
const maxNotes = 16

// Noted takes in what came of a Note.
func (c *Core) Noted(now Now, n Note, err error) {
	c.tick(now)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		// Rounds do not wait for it.
		c.overrides.noteAt = c.now.Mono + c.backoff(c.overrides.noteFailures, 100*time.Millisecond, 30*time.Second)
		c.overrides.noteFailures++
		c.say(levelWarn, "not noted in the history", "action", n.Action, "error", err.Error())
		return
	}
	c.overrides.noteFailures, c.store.loadDue = 0, true // the overrides are of another version
	if n.Lifts != 0 {
		c.overrides.noteAt = c.now.Mono + holdFor // by then it is known here
	} else if len(c.overrides.notes) > 0 && c.overrides.notes[0] == n {
		c.overrides.notes = c.overrides.notes[1:]
	}
}

// remember notes a freeze that the assigner itself has applied to the job, or lifted.
// What an operator has lifted is noted as the order.
func (o *overrides) remember(e membership.Event) {
	n := Note{Why: e.Reason}
	switch {
	case e.Kind == membership.Frozen:
		n.Action = froze
	case e.Kind == membership.Thawed && e.Reason != membership.ByOperator:
		n.Action = thawed
	default:
		return
	}
	o.notes = append(o.notes, n)
	o.notes = o.notes[max(0, len(o.notes)-maxNotes):]
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

// note is what is to be noted next, and from when on. The end of a freeze comes before
// the round that it lets happen.
func (o *overrides) note(m *members) (n Note, at time.Duration, ok bool) {
	f := o.inForce.Freeze
	if len(o.notes) > 0 {
		return o.notes[0], o.noteAt, true
	}
	for _, d := range o.inForce.Drains {
		if m.table == nil {
			break
		}
		if why := m.table.Ended(d.Task, d.Incarnation); why != "" {
			return Note{Action: "end of the drain of " + d.Task, Why: why, Lifts: d.Order}, o.noteAt, true
		}
	}
	if f == nil || f.Until.IsZero() {
		return Note{}, 0, false
	}
	last := f.Until.Sub(f.When)
	return Note{Action: elapsed, Why: fmt.Sprintf("its %s have passed", last), Lifts: f.Order}, max(o.noteAt, o.freezeSeen+last), true
}
