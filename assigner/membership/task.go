package membership

import (
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// fate is what has become of an incarnation.
type fate uint8

const (
	living fate = iota
	silent      // declared dead
	left        // said goodbye
)

// task is one name and the incarnation that counts.
type task struct {
	cur      assignment.Task // Index only when indexed
	identity string          // under which it has joined; "" is not known
	indexed  bool
	state    assignment.TaskState // as it reports itself
	fate     fate
	fateAt   time.Duration
	draining bool          // it has said so, and does until it restarts
	drained  bool          // an operator's override has it drain
	returned bool          // since it was dead, and is stored as dead still
	owns     bool          // slices in the stored assignment
	fresh    bool          // it began while this table was there
	since    time.Duration // when that could own slices, below 0 before

	spoken   bool // something was heard of this incarnation
	said     said
	heard    time.Duration // proof of life, or when the timer was restarted
	report   time.Duration // when the newest report was made
	carriers carriers
	via      Session // of these the one that brought the newest report
	gone     bool    // its last stream is known to have ended
	lostWith string  // the Distributor that took its stream along
	waited   bool    // for that Distributor's return
	missed   bool    // a freeze has ended without a word of it, and there was none since

	record record
	next   *candidate
	old    []past // other incarnations that were heard of, newest last
}

// candidate is an incarnation that does not count yet.
type candidate struct {
	task     assignment.Task
	identity string
	state    assignment.TaskState
	said     said
	reports  int
	first    time.Duration // when it was first heard
	from     time.Duration // since when reports count: by way of a session that is new, from the first
	last     time.Duration
	made     time.Duration // when its newest report was made
	carriers carriers
}

func (c *candidate) drop(s Session) (empty bool) {
	return c.carriers.drop(s) && len(c.carriers) == 0
}

// carriers are the sessions that have a stream of an incarnation, in order.
type carriers []Session

func (c *carriers) add(s Session) {
	if i, ok := slices.BinarySearch(*c, s); !ok {
		*c = slices.Insert(*c, i, s)
	}
}

func (c *carriers) drop(s Session) bool {
	i, ok := slices.BinarySearch(*c, s)
	if ok {
		*c = slices.Delete(*c, i, i+1)
	}
	return ok
}

func (k *task) alive() bool { return k.fate == living }

// drains reports whether a task is to own nothing: because it says so, by an override, or
// because it is stored so and has not been heard since.
func (k *task) drains() bool { return k.draining || k.drained || k.state == assignment.TaskDraining }

// maxOld is how many other incarnations of a name are remembered.
const maxOld = 8

// past is an incarnation that was heard of, and its newest report.
type past struct {
	incarnation uint64
	said        said
	made        time.Duration
}

func (k *task) past(incarnation uint64) int {
	return slices.IndexFunc(k.old, func(p past) bool { return p.incarnation == incarnation })
}

// outlived reports whether another incarnation is known to have reported for the last time before the
// one that counts did.
func (k *task) outlived(incarnation uint64) bool {
	i := k.past(incarnation)
	return i >= 0 && k.old[i].made <= k.report
}

// retire remembers an incarnation that does not count, or not any more.
func (k *task) retire(p past) {
	if i := k.past(p.incarnation); i >= 0 {
		for _, x := range p.said {
			k.old[i].said.add(x.session, x.sequence)
		}
		k.old[i].made = max(k.old[i].made, p.made)
		return
	}
	k.old = append(k.old, p)
	k.old = k.old[max(0, len(k.old)-maxOld):]
}

// said is what is known of the reports of an incarnation: for each session that has
// brought any the newest sequence. Those of different sessions cannot be compared.
type said []struct {
	session  Session
	sequence uint64
}

// maxSaid is of how many sessions that is known.
const maxSaid = 8

// fresh reports whether a report is not known yet: it is newer than others of its
// session, or else was made later than any other.
func (h said) fresh(s Session, sequence uint64, made, newest time.Duration) bool {
	for _, x := range h {
		if x.session == s {
			return sequence > x.sequence
		}
	}
	return len(h) == 0 || made > newest
}

func (h said) knows(s Session) bool {
	for _, x := range h {
		if x.session == s {
			return true
		}
	}
	return false
}

func (h *said) add(s Session, sequence uint64) {
	for i, x := range *h {
		if x.session == s {
			(*h)[i].sequence = max(x.sequence, sequence)
			return
		}
	}
	*h = append(*h, struct {
		session  Session
		sequence uint64
	}{s, sequence})
	*h = (*h)[max(0, len(*h)-maxSaid):]
}

// giveUp drops the candidate.
func (k *task) giveUp() {
	k.retire(past{k.next.task.Incarnation, k.next.said, k.next.made})
	k.next = nil
}

// stale reports whether an incarnation was heard of before and does not count, and
// what is known of its reports.
func (k *task) stale(incarnation uint64) (p past, ok bool) {
	if incarnation == k.cur.Incarnation {
		return past{incarnation, k.said, k.report}, true
	}
	if i := k.past(incarnation); i >= 0 {
		return k.old[i], true
	}
	return past{}, false
}

// shown is the state that the assignment's task table gets.
func (k *task) shown() assignment.TaskState {
	switch {
	case !k.alive():
		return assignment.TaskDead
	case k.drains():
		return assignment.TaskDraining
	case k.state == assignment.TaskRunning && !k.record.damped:
		return assignment.TaskRunning
	}
	return assignment.TaskStarting
}

// enter puts an incarnation in the place of the one before, if there was one.
func (r *roster) enter(k *task, c *candidate, kind Kind, why string) {
	if k.cur.Incarnation != c.task.Incarnation {
		k.retire(past{k.cur.Incarnation, k.said, k.report})
		if kind == Restarted && k.alive() && !k.drains() {
			r.failed(k)
		}
	}
	if i := k.past(c.task.Incarnation); i >= 0 {
		k.old = slices.Delete(k.old, i, i+1)
	}
	index := k.cur.Index
	k.owns = k.owns && k.cur.Incarnation == c.task.Incarnation
	if c.identity != "" || k.cur.Incarnation != c.task.Incarnation {
		k.identity = c.identity
	}
	k.cur = c.task
	k.cur.Index = index
	k.fate, k.fateAt = living, r.now
	k.draining, k.drained = false, r.drains[k.cur.Name] == k.cur.Incarnation
	k.returned = kind == Returned
	if kind != Returned {
		k.fresh, k.since = true, -1
	}
	k.spoken, k.said, k.heard, k.report = true, c.said, max(c.made, r.watch), c.made
	k.via, k.carriers, k.gone, k.lostWith, k.waited, k.missed = 0, c.carriers, false, "", false, false
	k.next = nil
	k.state = assignment.TaskUnknown
	r.say(k, kind, "%s", why)
	r.damp(k)
	r.report(k, c.state)
}

// report takes over the state that a task says it is in.
func (r *roster) report(k *task, s assignment.TaskState) {
	before := k.shown()
	switch s {
	case assignment.TaskDead:
		r.leave(k, "it says that it ends")
		return
	case assignment.TaskDraining:
		k.draining = true
	}
	k.state = s
	// Clients connect to one that starts before it is sent anything.
	known := k.state == assignment.TaskRunning || k.state == assignment.TaskStarting
	if known && !k.indexed && !r.number(k) {
		return
	}
	if now := k.shown(); now != before {
		r.changed(k, now)
	}
	r.begin(k)
}

// begin notes when a new incarnation can own slices for the first time.
func (r *roster) begin(k *task) {
	if k.fresh && k.since < 0 && k.shown() == assignment.TaskRunning {
		k.since = r.now
	}
}

func (r *roster) changed(k *task, now assignment.TaskState) {
	if now == assignment.TaskDraining {
		r.say(k, Drained, "it is to give up its slices")
		return
	}
	r.say(k, Changed, "it is %s", now)
}

// leave removes a task that has said goodbye.
func (r *roster) leave(k *task, why string) {
	k.fate, k.fateAt = left, r.now
	k.carriers, k.gone = nil, true
	r.say(k, Left, "%s", why)
}

// ended takes note that no Distributor has a stream of the task any more. That
// is a goodbye of one that has given up its slices, and otherwise nothing yet.
func (r *roster) ended(k *task) {
	k.gone, k.lostWith = true, ""
	if k.alive() && k.drains() && !k.owns {
		r.leave(k, "it has drained and its stream has ended")
	}
}
