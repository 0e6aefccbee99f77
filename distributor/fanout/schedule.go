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

// Schedule decides what one job has to tell which assigner, and when. It holds
// flags and times, no messages: what is sent is whatever is newest when the
// stream has room, so that a slow assigner costs nothing.
type Schedule struct {
	target    Session // who is asked for assignments
	preferred Session // who gets reports and acknowledgements; the target too, in the first tier
	// marked sessions have been told that something is due, and will take it.
	marked []Session

	want     due
	whole    bool // ask for the whole: what came did not decode
	failures int
	// Asked is the newest reported generation in the last Want.
	Asked assignment.Generation

	Reports  due
	complete bool
	// Gap is the time between two messages of reports where it is below reportGap, 0
	// otherwise. Then something is said that often even if there is no report: the
	// assigner takes a longer silence for a standstill of this Distributor.
	Gap  time.Duration
	Acks due

	clients    due
	allClients bool
}

// due is something that is to be sent at a time, if at is not zero.
type due struct {
	At, last time.Time
}

// after makes it due, gap after it was last sent at the earliest.
func (d *due) after(now time.Time, gap time.Duration) {
	at := d.last.Add(gap)
	if at.Before(now) {
		at = now
	}
	if d.At.IsZero() || at.Before(d.At) {
		d.At = at
	}
}

func (d *due) sent(now time.Time) { *d = due{last: now} }

func (d *due) ready(now time.Time) bool { return !d.At.IsZero() && !d.At.After(now) }

// plan is what one session is to be told now, in this order.
type plan struct {
	Want     bool
	Whole    bool // with want: as if nothing were held
	Reports  bool
	Complete bool // with reports
	Acks     bool
	// clients, and with it whether all of them, and not only what has changed.
	Clients, AllClients bool
}

// SetPeers says who there is: the session of the preferred assigner, 0 if it is
// not attached, and that of who is asked.
func (u *Schedule) SetPeers(now time.Time, preferred, target Session) {
	if target != u.target || preferred != u.preferred {
		// Asking the same one anew does no harm, and what was turned down from a
		// stand-in may be good from the preferred one.
		u.want, u.whole, u.failures = due{At: now}, false, 0
	}
	if preferred != u.preferred {
		u.Reports, u.complete, u.Acks = due{At: now}, true, due{At: now}
		u.clients, u.allClients = due{At: now}, true
	}
	u.target, u.preferred = target, preferred
}

// Receives says whether reports have a receiver that knows the tasks so far:
// only then is a disconnection news.
func (u *Schedule) Receives() bool { return u.preferred != 0 && !u.complete }

// Reported notes that a subscriber holds a generation that is newer than held:
// the assigner is to know, once.
func (u *Schedule) Reported(now time.Time, gen, held assignment.Generation) {
	if gen > held && gen > u.Asked {
		u.want.after(now, 0)
	}
}

// AskAnew has the job asked for again, with what is held.
func (u *Schedule) AskAnew(now time.Time) { u.want.after(now, 0) }

// Failed notes that an assignment did not decode: the whole is asked for, less
// and less often.
func (u *Schedule) Failed(now time.Time) {
	wait := min(askAgainMin<<min(u.failures, 10), AskAgainMax)
	u.failures++
	u.whole = true
	u.want.At = now.Add(wait)
}

// Succeeded notes that an assignment did decode.
func (u *Schedule) Succeeded() { u.failures = 0 }

// ReportsChanged notes that there are reports to be sent.
func (u *Schedule) ReportsChanged(now time.Time, urgent bool) {
	switch {
	case u.preferred == 0:
	case urgent:
		u.Reports.after(now, UrgentGap)
	default:
		u.Reports.after(now, cmp.Or(u.Gap, ReportGap))
	}
}

// ReportsEvery sets how often a task reports.
func (u *Schedule) ReportsEvery(now time.Time, interval time.Duration) {
	if u.Gap = interval / 2; u.Gap >= ReportGap {
		u.Gap = 0
	} else if u.preferred != 0 {
		u.Reports.after(now, u.Gap)
	}
}

// SnapshotInstead has a complete snapshot take the place of what waits.
func (u *Schedule) SnapshotInstead(now time.Time) { u.Reports.At, u.complete = now, true }

// KnowsClients says whether the preferred assigner has been told of the clients so
// far: only then is it news that one has gone.
func (u *Schedule) KnowsClients() bool { return u.preferred != 0 && !u.allClients }

// ClientsChanged notes that clerks have come or gone.
func (u *Schedule) ClientsChanged(now time.Time) {
	if u.preferred != 0 {
		u.clients.after(now, clientsGap)
	}
}

// AcksChanged notes that the subscribers have moved.
func (u *Schedule) AcksChanged(now time.Time) {
	if u.preferred != 0 {
		u.Acks.after(now, AcksGap)
	}
}

// Mark returns the sessions, 0 being none, that have something due and do not know it
// yet.
func (u *Schedule) Mark(now time.Time) (due [2]Session) {
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

// unaware says whether a session, if it is one, is to be told when something is due.
func (u *Schedule) unaware(s Session) bool {
	return s != 0 && !slices.Contains(u.marked, s)
}

// Wake is when mark will next have something to return, zero if never.
func (u *Schedule) Wake() (at time.Time) {
	if u.unaware(u.target) {
		at = u.want.At
	}
	if u.unaware(u.preferred) {
		at = Sooner(at, Sooner(u.Reports.At, Sooner(u.Acks.At, u.clients.At)))
	}
	return at
}

func (u *Schedule) plan(s Session, now time.Time) (p plan) {
	if s == u.target && u.want.ready(now) {
		p.Want, p.Whole = true, u.whole
	}
	if s == u.preferred {
		p.Reports = u.Reports.ready(now)
		p.Complete = p.Reports && u.complete
		// The assigner makes nothing of acknowledgements before it knows who is there.
		p.Acks = u.Acks.ready(now) && (p.Complete || !u.complete)
		p.Clients = u.clients.ready(now)
		p.AllClients = p.Clients && u.allClients
	}
	return p
}

// Take returns what the session is to be told now and considers it told; asked is
// the newest reported generation that a Want will carry.
func (u *Schedule) Take(s Session, now time.Time, asked assignment.Generation) plan {
	u.Ended(s)
	p := u.plan(s, now)
	if p.Want {
		u.want.sent(now)
		u.whole, u.Asked = false, asked
	}
	if p.Reports {
		u.Reports.sent(now)
		u.complete = false
		if u.Gap > 0 {
			u.Reports.after(now, u.Gap)
		}
	}
	if p.Acks {
		u.Acks.sent(now)
	}
	if p.Clients {
		u.clients.sent(now)
		u.allClients = false
	}
	return p
}

// Ended forgets a session that has ended.
func (u *Schedule) Ended(s Session) {
	u.marked = slices.DeleteFunc(u.marked, func(x Session) bool { return x == s })
}

// Sooner is the earlier of two times, the zero time being never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
