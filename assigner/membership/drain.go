package membership

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Errors of Drain and Undrain.
var (
	// ErrUnknown: there is no such task.
	ErrUnknown = errors.New("no such task")
	// ErrState: the task is in a state that does not allow it.
	ErrState = errors.New("not possible in the task's state")
)

// Drain has a task give up its slices until it restarts or Undrain.
func (t *Table) Drain(now time.Duration, name string) error {
	t.tick(now)
	k, err := t.operable(name)
	if err != nil || k.draining {
		return err
	}
	others := false
	for _, o := range t.tasks {
		others = others || o != k && o.shown() == assignment.TaskRunning
	}
	if !others {
		return fmt.Errorf("%w: no other task is running that could take the slices of %s", ErrState, name)
	}
	k.draining, k.undrained = true, false
	t.say(k, Drained, ByOperator)
	return nil
}

// Undrain takes Drain back.
func (t *Table) Undrain(now time.Duration, name string) error {
	t.tick(now)
	k, err := t.operable(name)
	switch {
	case err != nil || !k.draining:
		return err
	case k.byItself:
		return fmt.Errorf("%w: %s drains because it is about to end", ErrState, name)
	}
	k.draining, k.undrained = false, true
	t.say(k, Undrained, ByOperator)
	return nil
}

// Thaw ends a freeze by order of an operator, and says whether there was one. Who
// is still silent is dead, and for a freeze window nothing freezes again.
func (t *Table) Thaw(now time.Duration) bool {
	t.tick(now)
	if !t.frozen {
		return false
	}
	t.trusts, t.scan = t.now+t.cfg.Freeze.Window, t.now
	t.say(nil, Thawed, ByOperator)
	t.giveUp()
	return true
}

// DrainedByOrder says whether an operator has a task drained, or has taken that back.
func (t *Table) DrainedByOrder(name string) (drained, undrained bool) {
	k := t.lookup(name)
	if k == nil || !k.alive() {
		return false, false
	}
	return k.draining && !k.byItself, k.undrained && !k.draining
}

func (t *Table) operable(name string) (*task, error) {
	k := t.lookup(name)
	switch {
	case k == nil:
		return nil, fmt.Errorf("%w: %s", ErrUnknown, name)
	case !k.alive():
		return nil, fmt.Errorf("%w: %s is dead", ErrState, name)
	}
	return k, nil
}

// Status is how a task stands.
type Status struct {
	Task assignment.Task // with the state that the table gives it
	// Indexed is false while it has never been running.
	Indexed   bool
	Connected bool          // some Distributor has a stream of it
	Age       time.Duration // of its newest report; -1 when there is none
	// Damped is for how long it will own nothing because it has failed too often.
	Damped time.Duration
}

// Statuses are those of all tasks, in order of name.
func (t *Table) Statuses(now time.Duration) []Status {
	out := make([]Status, len(t.tasks))
	for i, k := range t.tasks {
		x := k.cur
		x.State = k.shown()
		out[i] = Status{Task: x, Indexed: k.indexed, Connected: len(k.carriers) > 0, Age: -1}
		if k.record.damped {
			out[i].Damped = max(k.record.left(now, &t.cfg.Damping), time.Millisecond)
		}
		if k.spoken {
			out[i].Age = now - k.report
		}
	}
	return out
}

// Has says whether a task of that name is known.
func (t *Table) Has(name string) bool { return t.lookup(name) != nil }

// Alive is the number of tasks that are neither dead nor gone.
func (t *Table) Alive() int {
	n := 0
	for _, k := range t.tasks {
		if k.alive() {
			n++
		}
	}
	return n
}

// AnyRunning says whether there is a task that may own slices.
func (t *Table) AnyRunning() bool {
	return slices.ContainsFunc(t.tasks, func(k *task) bool { return k.shown() == assignment.TaskRunning })
}
