package fanout

import (
	"cmp"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Session numbers one stream to an assigner, never the same twice; 0 is none.
type Session uint64

const (
	// ReportGap is the time between two messages of ordinary reports, at the most; else
	// it is half of the time between two reports of a task.
	ReportGap = 500 * time.Millisecond
	// UrgentGap is the time that urgent reports wait for others of their kind.
	UrgentGap = 20 * time.Millisecond
	// clientsGap is the least time between two messages of Clients.
	clientsGap = 50 * time.Millisecond
	// AcksGap is the least time between two Acks.
	AcksGap = 50 * time.Millisecond
	// Waits before asking again for the whole after an assignment that would not
	// decode.
	askAgainMin = 100 * time.Millisecond
	AskAgainMax = 10 * time.Second
)

// schedule decides what one job has to tell which assigner, and when. It holds
// flags and times, no messages: what is sent is whatever is newest when the
// stream has room, so that a slow assigner costs nothing.
type schedule struct {
	target    Session // is asked for assignments
	preferred Session // gets reports and acknowledgements; the target too, in the first tier
	// marked sessions have been told that something is due, and will take it.
	marked []Session

	want     due
	whole    bool // ask for the whole: what came did not decode
	failures int
	// asked is the newest reported generation in the last Want.
	asked assignment.Generation

	reports  due
	complete bool
	// gap is the time between two messages of reports where it is below reportGap, 0
	// otherwise. Then something is said that often even if there is no report: the
	// assigner takes a longer silence for a standstill of this Distributor.
	gap  time.Duration
	acks due

	uses due // what customers ask for

	clients    due
	allClients bool
}

// due is something that is to be sent at a time, if at is not zero.
type due struct {
	at, last time.Time
}

// after makes it due, gap after it was last sent at the earliest.
func (d *due) after(now time.Time, gap time.Duration) {
	at := d.last.Add(gap)
	if at.Before(now) {
		at = now
	}
	if d.at.IsZero() || at.Before(d.at) {
		d.at = at
	}
}

func (d *due) sent(now time.Time) { *d = due{last: now} }

func (d *due) ready(now time.Time) bool { return !d.at.IsZero() && !d.at.After(now) }

// plan is what one session is to be told now, in this order.
type plan struct {
	want     bool
	whole    bool // with want: as if nothing were held
	reports  bool
	complete bool // with reports
	acks     bool
	uses     bool
	// clients, and with it whether all of them, and not only what has changed.
	clients, allClients bool
}

// setPeers takes the session of the preferred assigner, 0 if it is not attached, and that
// of the peer that is asked.
func (u *schedule) setPeers(now time.Time, preferred, target Session) {
	if target != u.target || preferred != u.preferred {
		// Asking the same one anew does no harm, and what was turned down from a
		// stand-in may be good from the preferred one.
		u.want, u.whole, u.failures = due{at: now}, false, 0
	}
	if preferred != u.preferred {
		u.reports, u.complete, u.acks = due{at: now}, true, due{at: now}
		u.clients, u.allClients = due{at: now}, true
		u.uses = due{}
	}
	u.target, u.preferred = target, preferred
}

// receives reports whether reports have a receiver that knows the tasks so far: only then
// is it to be told of a disconnection.
func (u *schedule) receives() bool { return u.preferred != 0 && !u.complete }

// reported notes that a subscriber holds a generation that is newer than held:
// the assigner is to know, once.
func (u *schedule) reported(now time.Time, gen, held assignment.Generation) {
	if gen > held && gen > u.asked {
		u.want.after(now, 0)
	}
}

// askAnew makes the next want due: the job is asked for again, with what is held.
func (u *schedule) askAnew(now time.Time) { u.want.after(now, 0) }

// failed notes that an assignment did not decode: the whole is asked for, less
// and less often.
func (u *schedule) failed(now time.Time) {
	wait := min(askAgainMin<<min(u.failures, 10), AskAgainMax)
	u.failures++
	u.whole = true
	u.want.at = now.Add(wait)
}

// succeeded notes that an assignment did decode.
func (u *schedule) succeeded() { u.failures = 0 }

// reportsChanged notes that there are reports to be sent.
func (u *schedule) reportsChanged(now time.Time, urgent bool) {
	switch {
	case u.preferred == 0:
	case urgent:
		u.reports.after(now, UrgentGap)
	default:
		u.reports.after(now, cmp.Or(u.gap, ReportGap))
	}
}

// reportsEvery sets how often a task reports.
func (u *schedule) reportsEvery(now time.Time, interval time.Duration) {
	if u.gap = interval / 2; u.gap >= ReportGap {
		u.gap = 0
	} else if u.preferred != 0 {
		u.reports.after(now, u.gap)
	}
}

// snapshotInstead replaces what waits by a complete snapshot.
func (u *schedule) snapshotInstead(now time.Time) { u.reports.at, u.complete = now, true }

// knowsClients reports whether the preferred assigner has been told of the clients so
// far: only then is it to be told that one has gone.
func (u *schedule) knowsClients() bool { return u.preferred != 0 && !u.allClients }

// clientsChanged notes that clerks have come or gone.
func (u *schedule) clientsChanged(now time.Time) {
	if u.preferred != 0 {
		u.clients.after(now, clientsGap)
	}
}

// acksChanged notes that the subscribers have moved.
func (u *schedule) acksChanged(now time.Time) {
	if u.preferred != 0 {
		u.acks.after(now, AcksGap)
	}
}

// usesChanged notes that there is something new of what customers ask for, in a job with
// limits.
func (u *schedule) usesChanged(now time.Time, limited bool) {
	if u.preferred != 0 && limited {
		u.uses.after(now, UsesGap)
	}
}

// mark returns the sessions, 0 being none, that have something due and do not know it
// yet.
func (u *schedule) mark(now time.Time) (due [2]Session) {
	for i, s := range [2]Session{u.target, u.preferred} {
		if i > 0 && s == u.target {
			continue
		}
		if u.unaware(s) && u.plan(s, now) != (plan{}) {
			u.marked = append(u.marked, s)
			due[i] = s
		}
	}
	return due
}

// unaware reports whether a session, if it is one, is to be told when something is due.
func (u *schedule) unaware(s Session) bool {
	return s != 0 && !slices.Contains(u.marked, s)
}

// wake is when mark will next have something to return, zero if never.
func (u *schedule) wake() (at time.Time) {
	if u.unaware(u.target) {
		at = u.want.at
	}
	if u.unaware(u.preferred) {
		at = Sooner(at, Sooner(u.reports.at, Sooner(u.acks.at, Sooner(u.uses.at, u.clients.at))))
	}
	return at
}

func (u *schedule) plan(s Session, now time.Time) (p plan) {
	if s == u.target && u.want.ready(now) {
		p.want, p.whole = true, u.whole
	}
	if s == u.preferred {
		p.reports = u.reports.ready(now)
		p.complete = p.reports && u.complete
		// The assigner ignores acknowledgements until it knows the tasks.
		p.acks = u.acks.ready(now) && (p.complete || !u.complete)
		p.uses = u.uses.ready(now)
		p.clients = u.clients.ready(now)
		p.allClients = p.clients && u.allClients
	}
	return p
}

// take returns what the session is to be told now and considers it told; asked is
// the newest reported generation that a Want will carry.
func (u *schedule) take(s Session, now time.Time, asked assignment.Generation) plan {
	u.ended(s)
	p := u.plan(s, now)
	if p.want {
		u.want.sent(now)
		u.whole, u.asked = false, asked
	}
	if p.reports {
		u.reports.sent(now)
		u.complete = false
		if u.gap > 0 {
			u.reports.after(now, u.gap)
		}
	}
	if p.acks {
		u.acks.sent(now)
	}
	if p.uses {
		u.uses.sent(now)
	}
	if p.clients {
		u.clients.sent(now)
		u.allClients = false
	}
	return p
}

// ended forgets a session that has ended.
func (u *schedule) ended(s Session) {
	u.marked = slices.DeleteFunc(u.marked, func(x Session) bool { return x == s })
}

// Sooner is the earlier of two times, the zero time being never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
