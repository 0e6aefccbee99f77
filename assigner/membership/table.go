package membership

import (
	"cmp"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Session numbers one stream of a Distributor. A Distributor that attaches anew
// has a new one.
type Session uint64

// distributor is an attached Distributor.
type distributor struct {
	id       Session
	name     string        // the Distributor's
	since    time.Duration // when the table first knew of it
	heard    time.Duration // when it last said anything
	complete bool          // it has said which tasks it carries
	said     bool          // it had before Resume or Away, and may be reporting to another assigner
	speaks   time.Duration // since when it has done so without a long silence of its own
}

// Table is the membership of one job, from the moment at which an assigner
// became preferred for it.
type Table struct {
	*base
	roster   *roster
	attached *attached
	freeze   *freeze
	scan     time.Duration // when tasks are looked at next
	// Names are whose the names of its tasks are.
	Names *Names
}

// base is what all parts of a table go by.
type base struct {
	cfg   Config // with the defaults
	now   time.Duration
	watch time.Duration // silence counts from here on
}

// roster is the tasks by name and by index, and what becomes of each.
type roster struct {
	*base
	tasks   []*task           // in order of name
	slots   []*task           // by index; nil is a hole
	drains  map[string]uint64 // incarnations that operators have drained, by name
	version uint64
	events  []Event
	holders
}

// attached is the Distributors that report tasks.
type attached struct {
	*base
	all []*distributor // in order of id
	// No task dies before all of them could speak: from then on it is armed.
	armed   bool
	settled time.Duration
}

// freeze is whether silent tasks are declared dead.
type freeze struct {
	*base
	roster   *roster
	attached *attached
	frozen   bool
	frozenAt time.Duration
	deaths   []time.Duration // by silence, within the freeze window
	trusts   time.Duration   // no freeze before that: an operator knows better
}

// New makes the table of a job whose newest stored assignment is a, nil if there
// is none. Tasks that it names count as they are written there until something
// is heard of them.
func New(cfg Config, now time.Duration, a *assignment.Assignment) *Table {
	b := &base{cfg: cfg.withDefaults(), now: now, watch: now}
	t := &Table{base: b, roster: &roster{base: b}, attached: &attached{base: b}}
	t.Names = &Names{t.roster}
	t.freeze = &freeze{base: b, roster: t.roster, attached: t.attached}
	t.Stored(a, false)
	t.roster.events = nil
	return t
}

// Configure changes how the table decides.
func (t *Table) Configure(now time.Duration, cfg Config) {
	t.tick(now)
	before := t.cfg.HeartbeatTimeout
	if t.cfg = cfg.withDefaults(); t.cfg.HeartbeatTimeout < before {
		// Tasks still report as often as they were told before.
		t.watch = max(t.watch, t.now+t.cfg.Settle)
	}
}

// Version changes whenever Tasks may return something else.
func (t *Table) Version() uint64 { return t.roster.version }

// Attach says that a Distributor's stream has begun.
func (t *Table) Attach(now time.Duration, id Session, name string) {
	t.tick(now)
	i, known := t.attached.findSession(id)
	if known {
		return
	}
	if len(t.attached.all) == 0 {
		t.attached.armed, t.attached.settled = false, now+t.cfg.Settle
	}
	t.attached.all = slices.Insert(t.attached.all, i, &distributor{id: id, name: name, since: now, heard: now})
	// A Distributor that returns may bring back those that went with it: they are
	// waited for once more, once.
	for _, k := range t.roster.tasks {
		if k.alive() && k.lostWith == name && len(k.carriers) == 0 && !k.waited {
			k.waited = true
			t.regroup(k)
		}
	}
}

// Resume says that the table was left alone for a while, in which Distributors may have
// reported to another assigner. All timers restart. A Distributor that had said which
// tasks it carries is not waited for: it either has not learnt of that, and its next
// report says so, or says it anew. Until then, or for SnapshotWait, it is no evidence of
// any task's silence.
func (t *Table) Resume(now time.Duration) {
	t.tick(now)
	t.watch = max(t.watch, t.now)
	for _, s := range t.attached.all {
		t.attached.doubt(s)
	}
}

// Away says that a Distributor has turned to another assigner, which may not be known here
// yet: as after Resume it is no evidence of any task's silence until its next report, or for
// SnapshotWait.
func (t *Table) Away(now time.Duration, id Session) {
	t.tick(now)
	if i, known := t.attached.findSession(id); known {
		t.attached.doubt(t.attached.all[i])
	}
}

func (d *attached) doubt(s *distributor) {
	s.complete, s.said, s.since = false, s.complete || s.said, d.now
}

// Follow takes over, from the table that this one replaces, which identities hold names, and which
// tasks Distributors carry, as far as they have not said so anew. They may not say it again: they are waited
// for no more than after Resume. All timers restart.
func (t *Table) Follow(now time.Duration, was *Table) {
	t.tick(now)
	t.watch = max(t.watch, t.now)
	t.roster.follow(was.roster)
	for _, s := range t.attached.all {
		i, known := was.attached.findSession(s.id)
		if !known || s.complete || !was.attached.all[i].complete && !was.attached.all[i].said {
			continue
		}
		s.said, s.since = true, t.now
		for _, k := range t.roster.tasks {
			o := was.roster.lookup(k.cur.Name)
			if o != nil && k.alive() && o.cur.Incarnation == k.cur.Incarnation && slices.Contains(o.carriers, s.id) {
				k.carriers.add(s.id)
			}
		}
	}
}

// Detach says that a Distributor's stream has ended.
func (t *Table) Detach(now time.Duration, id Session) {
	t.tick(now)
	i, known := t.attached.findSession(id)
	if !known {
		return
	}
	name := t.attached.all[i].name
	t.attached.all = slices.Delete(t.attached.all, i, i+1)
	for _, k := range t.roster.tasks {
		if k.next != nil && k.next.drop(id) {
			k.giveUp()
		}
		if !k.carriers.drop(id) || slices.Contains(k.carriers, k.via) {
			continue // it was not, or is no more, the one by way of which the task is heard of
		}
		// Losing a Distributor restarts the timers of its tasks. That it no longer
		// carries them does not say that their streams have ended.
		t.regroup(k)
		k.lostWith, k.waited = name, false
	}
}

// regroup restarts a task's timer, so that it has the time to be heard of by way of
// another Distributor.
func (b *base) regroup(k *task) {
	k.heard = max(k.heard, b.now+b.cfg.regroupsFor())
}

// Heard says when a Distributor last said something, whatever it was.
func (t *Table) Heard(now time.Duration, id Session, at time.Duration) {
	t.tick(now)
	if i, known := t.attached.findSession(id); known {
		s := t.attached.all[i]
		t.attached.hear(s, min(at, t.now))
	}
}

// hear notes that a Distributor has said something. One that promises to speak
// more often, and that has said nothing at all for long, stood still: what it did
// not carry meanwhile says nothing of its tasks, so their timers restart.
func (d *attached) hear(s *distributor, at time.Duration) {
	if at-s.heard > d.cfg.standstill() {
		s.speaks = max(s.speaks, at)
	}
	s.heard = max(s.heard, at)
}

// tick takes note of the time. A table that was not told the time for long was
// stopped together with its ears: what it did not hear meanwhile says nothing.
func (b *base) tick(now time.Duration) {
	if now-b.now > b.cfg.standstill() {
		b.watch = max(b.watch, now)
	}
	b.now = max(b.now, now)
}

func (d *attached) findSession(id Session) (int, bool) {
	return slices.BinarySearchFunc(d.all, id, func(s *distributor, id Session) int { return cmp.Compare(s.id, id) })
}

func (r *roster) find(name string) (int, bool) {
	i, end := 0, len(r.tasks)
	for i < end { // as slices.BinarySearchFunc, which calls a function for each step
		if m := int(uint(i+end) / 2); r.tasks[m].cur.Name < name {
			i = m + 1
		} else {
			end = m
		}
	}
	return i, i < len(r.tasks) && r.tasks[i].cur.Name == name
}

func (r *roster) lookup(name string) *task {
	if i, ok := r.find(name); ok {
		return r.tasks[i]
	}
	return nil
}

func (r *roster) insert(k *task) {
	i, _ := r.find(k.cur.Name)
	r.tasks = slices.Insert(r.tasks, i, k)
	r.claim(k)
}

// Advance lets time pass: tasks that have been silent for too long die, waiting
// incarnations are let in. Call it at Wake, and after anything was said.
func (t *Table) Advance(now time.Duration) {
	t.tick(now)
	t.arm(t.now)
	if t.now < t.scan {
		return
	}
	t.scan = t.now + t.cfg.scanEvery()
	for _, k := range t.roster.tasks {
		t.roster.settle(k)
		t.roster.undamp(k)
	}
	t.freeze.judge()
	t.roster.undampIfAlone()
}

// Wake is when Advance has something to do at the latest.
func (t *Table) Wake() time.Duration {
	if t.freeze.frozen {
		return max(t.scan, t.now)
	}
	for _, k := range t.roster.tasks {
		if k.alive() || k.next != nil {
			return max(t.scan, t.now)
		}
	}
	return t.now + time.Hour
}

// arm begins to count silence once every Distributor that could have something to say has
// said it.
func (t *Table) arm(now time.Duration) {
	if t.attached.armed || len(t.attached.all) == 0 || now < t.attached.settled || t.roster.expects {
		return
	}
	for _, s := range t.attached.all {
		if !s.complete && !s.said && now < s.since+t.cfg.SnapshotWait {
			return
		}
	}
	t.attached.armed, t.watch = true, max(t.watch, now)
	for _, k := range t.roster.tasks {
		if !k.alive() || len(k.carriers) > 0 {
			continue
		}
		// A task of which no Distributor has spoken by now has no stream left here; but
		// it may have one at a Distributor that has not reached this assigner.
		t.regroup(k)
		if k.lostWith == "" {
			t.roster.ended(k)
		}
	}
}
