package membership

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Errors of what operators ask for.
var (
	// ErrUnknown: there is no such task.
	ErrUnknown = errors.New("no such task")
	// ErrState: the task is in a state that does not allow it.
	ErrState = errors.New("not possible in the task's state")
)

// Drain sets which incarnations operators have drained, by the names of their tasks: they
// are to own nothing. It keeps the map.
func (t *Table) Drain(now time.Duration, drains map[string]uint64) {
	t.tick(now)
	t.roster.drains = drains
	for _, k := range t.roster.tasks {
		drained := drains[k.cur.Name] == k.cur.Incarnation
		if !k.alive() || k.drained == drained {
			continue
		}
		before := k.drains()
		if k.drained = drained; !drained && !k.spoken {
			k.state = assignment.TaskUnknown // what is stored of it was that drain
		}
		switch {
		case drained && !before:
			t.roster.say(k, Drained, ByOperator)
		case !drained && !k.drains():
			t.roster.say(k, Undrained, ByOperator)
		}
	}
}

// Ended says why an incarnation is known to be no more, or is empty. One that has left may
// only have lost its connection, and is drained still when it is back: it is known to have
// ended when it has been away for a heartbeat timeout.
func (t *Table) Ended(name string, incarnation uint64) string {
	k := t.roster.lookup(name)
	switch {
	case k == nil && t.Listening() == "":
		return "it is not there any more"
	case k == nil || k.next != nil && k.next.task.Incarnation == incarnation:
		return ""
	case k.cur.Incarnation == incarnation && k.fate == left && t.now < k.fateAt+t.cfg.HeartbeatTimeout:
		return ""
	case k.cur.Incarnation == incarnation && !k.alive():
		return "it " + k.ending()
	case k.cur.Incarnation != incarnation && (k.past(incarnation) >= 0 || t.Listening() == ""):
		return fmt.Sprintf("it has restarted as incarnation %x", k.cur.Incarnation)
	}
	return ""
}

// Thaw ends a freeze by order of an operator, and reports whether there was one. A task
// that is still silent is dead, and for a freeze window nothing freezes again.
func (t *Table) Thaw(now time.Duration) bool {
	t.tick(now)
	if !t.freeze.frozen {
		return false
	}
	t.freeze.trusts, t.scan = t.now+t.cfg.Freeze.Window, t.now
	t.roster.say(nil, Thawed, ByOperator)
	t.freeze.giveUp()
	return true
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
	out := make([]Status, len(t.roster.tasks))
	for i, k := range t.roster.tasks {
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

// Has reports whether a task of that name is known.
func (t *Table) Has(name string) bool { return t.roster.lookup(name) != nil }

// Alive is the number of tasks that are neither dead nor gone.
func (t *Table) Alive() int {
	n := 0
	for _, k := range t.roster.tasks {
		if k.alive() {
			n++
		}
	}
	return n
}

// AnyRunning reports whether there is a task that may own slices.
func (t *Table) AnyRunning() bool { return t.roster.anyRunning() }

func (r *roster) anyRunning() bool {
	return slices.ContainsFunc(r.tasks, func(k *task) bool { return k.shown() == assignment.TaskRunning })
}
