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
	// Lifts is the number of a freeze by order that ends with it, 0 if none does. When
	// that is not in force any more there is nothing to be done.
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

// remember has a freeze that the assigner itself has laid on the job, or lifted, noted.
// What an operator has lifted is noted as the order.
func (c *Core) remember(e membership.Event) {
	n := Note{Why: e.Reason}
	switch {
	case e.Kind == membership.Frozen:
		n.Action = froze
	case e.Kind == membership.Thawed && e.Reason != membership.ByOperator:
		n.Action = thawed
	default:
		return
	}
	c.notes = append(c.notes, n)
	c.notes = c.notes[max(0, len(c.notes)-maxNotes):]
}

// note is what is to be noted next, nil if nothing or not yet. The end of a freeze
// comes before the round that it lets happen.
func (c *Core) note() Action {
	if !c.isPreferred() || !c.mine || !c.exists || c.now.Mono < c.noteAt {
		return nil
	}
	if len(c.notes) > 0 {
		return c.notes[0]
	}
	if f := c.controls.Freeze; f != nil && c.over(f) {
		return Note{Action: elapsed, Why: fmt.Sprintf("its %s have passed", f.Until.Sub(f.When)), Lifts: f.Order}
	}
	return nil
}

// Noted takes in what came of a Note.
func (c *Core) Noted(now Now, n Note, err error) {
	c.tick(now)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		// Rounds do not wait for it.
		c.noteAt = c.now.Mono + c.backoff(c.noteFailures, 100*time.Millisecond, 30*time.Second)
		c.noteFailures++
		c.say(levelWarn, "not noted in the history", "action", n.Action, "error", err.Error())
		return
	}
	c.noteFailures, c.loadDue = 0, true // the orders are of another version
	if n.Lifts != 0 {
		c.noteAt = c.now.Mono + holdFor // by then it is known here
	} else if len(c.notes) > 0 && c.notes[0] == n {
		c.notes = c.notes[1:]
	}
}

// noteWake is when note may turn out otherwise.
func (c *Core) noteWake() (at time.Duration, ok bool) {
	f := c.controls.Freeze
	switch {
	case !c.isPreferred() || !c.mine || !c.exists:
		return 0, false
	case len(c.notes) > 0:
		return c.noteAt, true
	case f != nil && !f.Until.IsZero():
		return max(c.noteAt, c.freezeSeen+f.Until.Sub(f.When)), true
	}
	return 0, false
}

// seeFreeze notes since when a freeze by order is known here. Its time counts from then
// on, by the clock that never jumps, so that no wall clock that is wrong ends it: not
// that of the assigner that took the order, nor this one's. An assigner that starts
// anew counts from its start.
func (c *Core) seeFreeze() {
	order := int64(0)
	if f := c.controls.Freeze; f != nil {
		order = f.Order
	}
	if order != c.freezeOrder {
		c.freezeOrder, c.freezeSeen = order, c.now.Mono
	}
}

// over says whether the time of a freeze by order has passed.
func (c *Core) over(f *store.Freeze) bool {
	return !f.Until.IsZero() && c.now.Mono-c.freezeSeen >= f.Until.Sub(f.When)
}
