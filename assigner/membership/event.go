package membership

import "fmt"

// Kind is what happened.
type Kind string

// Kinds of events.
const (
	Joined    Kind = "joined"    // a name that was not there
	Restarted Kind = "restarted" // a new incarnation of a known name
	Returned  Kind = "returned"  // an incarnation that was dead
	Changed   Kind = "changed"   // it reports another state
	Drained   Kind = "draining"  // it is to give up its slices
	Undrained Kind = "undrained" // an operator took that back
	Left      Kind = "left"      // it said goodbye
	Dead      Kind = "dead"      // its reports stopped
	Refused   Kind = "refused"   // its stream is to be ended
	Renumber  Kind = "renumbered"
	Damped    Kind = "damped" // it fails too often, and has to wait for its slices
	Undamped  Kind = "undamped"
	Frozen    Kind = "frozen"
	Thawed    Kind = "thawed"
)

// ByOperator is the reason of what an operator has ordered.
const ByOperator = "by an operator"

// Event is one change of the table.
type Event struct {
	Kind        Kind
	Task        string // empty for Frozen and Thawed
	Incarnation uint64
	// Reason is why, for people.
	Reason string
	// Sessions are those whose stream of the task is to be ended, for Refused.
	Sessions []Session
	// Full says that there is no room: Refused, but not for another's sake.
	Full bool
	// Identity is whose report it was, and Holder holds the name: Refused since these are
	// not the same, else empty. Holder is for the log, not for the one that is refused.
	Identity, Holder string
}

// Urgent reports whether other tasks have to take over slices at once.
func (e Event) Urgent() bool {
	switch e.Kind {
	case Restarted, Drained, Undrained, Left, Dead:
		return true
	}
	return false
}

func (e Event) String() string {
	s := string(e.Kind)
	if e.Task != "" {
		s += fmt.Sprintf(" %s/%x", e.Task, e.Incarnation)
	}
	if len(e.Sessions) > 0 {
		s += fmt.Sprintf(" on %v", e.Sessions)
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Events returns what has happened since the last call.
func (t *Table) Events() []Event {
	e := t.roster.events
	t.roster.events = nil
	return e
}

func (r *roster) say(k *task, kind Kind, format string, args ...any) {
	e := Event{Kind: kind, Reason: fmt.Sprintf(format, args...)}
	if k != nil {
		e.Task, e.Incarnation = k.cur.Name, k.cur.Incarnation
	}
	r.events = append(r.events, e)
	if kind != Frozen && kind != Thawed && kind != Refused {
		r.version++
	}
}
