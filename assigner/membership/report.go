package membership

import (
	"fmt"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Report is what a Distributor says of one task.
type Report struct {
	Task assignment.Task // valid; its Index is ignored
	// Identity is the one under which the task has joined; "" is not known, and counts for
	// nothing.
	Identity string
	// Said is false when the Distributor has its stream but no report yet.
	Said bool
	// Sequence grows within the session.
	Sequence uint64
	Age      time.Duration
	State    assignment.TaskState
	// Disconnected: the task's stream to the Distributor has ended.
	Disconnected bool
	// Foreign is set by Table.Report where the name is another identity's, or may be: nothing
	// of the report counts.
	Foreign bool

	early bool // nothing is wrong with it, but for that: see Names.Expect
}

// Report takes in what a Distributor says. A complete report names every task
// that has a stream there. Reports that are Foreign are marked.
func (t *Table) Report(now time.Duration, id Session, complete bool, reports []Report) {
	t.tick(now)
	i, known := t.attached.findSession(id)
	if !known {
		return
	}
	s := t.attached.all[i]
	t.attached.hear(s, now)
	for i := range reports {
		t.reported(s, &reports[i])
	}
	if !s.complete && (complete || s.said) {
		s.complete, s.speaks = true, t.now
	}
	if complete {
		onlyThese(t.roster, s, reports)
	}
}

func (t *Table) reported(s *distributor, r *Report) {
	k := t.roster.lookup(r.Task.Name)
	r.early = t.roster.expects && !r.Disconnected && r.Identity != "" && (k == nil || k.identity != r.Identity)
	if r.Foreign = r.early; r.early {
		return
	}
	if k == nil {
		r.Foreign = t.roster.heldByOther(r.Task.Name, r.Identity)
		switch {
		case r.Disconnected:
		case r.Foreign:
			t.roster.refuseForeign(r, s, t.roster.holds[r.Task.Name].identity)
		default:
			t.join(s, r)
		}
		return
	}
	t.roster.settle(k) // by what was known until now: the table may not have been told the time for long
	if r.Foreign = t.roster.foreign(k, r.Identity); r.Foreign {
		if !r.Disconnected {
			t.roster.refuseForeign(r, s, k.identity)
		}
		return
	}
	inc := r.Task.Incarnation
	switch {
	case r.Disconnected && inc == k.cur.Incarnation:
		t.roster.dropCarrier(k, s)
	case r.Disconnected:
		if k.next != nil && k.next.task.Incarnation == inc && k.next.drop(s.id) {
			k.giveUp()
		}
	case inc == k.cur.Incarnation && k.alive():
		t.live(k, s, r)
	default:
		t.wait(k, s, r)
	}
	t.roster.settle(k)
}

func (r *roster) refuseForeign(x *Report, s *distributor, holder string) {
	r.events = append(r.events, Event{Kind: Refused, Task: x.Task.Name, Incarnation: x.Task.Incarnation, Sessions: carriers{s.id},
		Reason: fmt.Sprintf("task %s is that of another identity", x.Task.Name), Identity: x.Identity, Holder: holder})
}

// foreign reports whether a name is another identity's than that of a report: as long as the
// task lives and, so that it has the time to restart, for a while from then on.
func (r *roster) foreign(k *task, identity string) bool {
	if identity == "" || k.identity == "" || identity == k.identity {
		return false
	}
	return r.now < r.until(k)
}

// full says why no further task may live, "" if one may. Those that live are more than
// MaxTasks where it has been lowered, and stay.
func (r *roster) full() string {
	if len(r.tasks) < r.cfg.MaxTasks {
		return ""
	}
	live := 0
	for _, k := range r.tasks {
		if k.alive() {
			live++
		}
	}
	if live < r.cfg.MaxTasks {
		return ""
	}
	return fmt.Sprintf("the job has %d tasks, and its max_tasks is %d", live, r.cfg.MaxTasks)
}

// join lets in a name that was not there.
func (t *Table) join(s *distributor, r *Report) {
	why := t.roster.full()
	if len(t.roster.tasks) >= assignment.MaxTasks {
		why = fmt.Sprintf("the job has had %d names of tasks of late, more are not allowed", len(t.roster.tasks))
	}
	if why != "" {
		t.roster.refuse(r.Task, carriers{s.id}, true, why)
		return
	}
	if r.State == assignment.TaskDead {
		return
	}
	k := &task{cur: r.Task}
	t.roster.insert(k)
	t.roster.enter(k, t.candidate(s, r), Joined, "at "+r.Task.Address)
}

// live takes in a report of the incarnation that counts.
func (t *Table) live(k *task, s *distributor, r *Report) {
	k.carriers.add(s.id)
	k.gone, k.lostWith = false, ""
	if k.identity == "" && r.Identity != "" {
		k.identity = r.Identity
		t.roster.changes++
	}
	if !r.Said || k.spoken && !k.said.fresh(s.id, r.Sequence, t.made(r), k.report) {
		return // connected, but nothing new: a report overtaken by a later one
	}
	k.spoken, k.missed = true, false
	k.said.add(s.id, r.Sequence)
	k.heard = max(k.heard, t.made(r))
	k.report = max(k.report, t.made(r))
	k.via = s.id
	t.roster.report(k, r.State)
}

// wait takes in a report of an incarnation that does not count, or not any more.
func (t *Table) wait(k *task, s *distributor, r *Report) {
	c := k.next
	before, stale := k.stale(r.Task.Incarnation)
	switch {
	case stale && (!r.Said || !before.said.fresh(s.id, r.Sequence, t.made(r), before.made)):
		// Old news.
	case c == nil:
		if r.State != assignment.TaskDead {
			k.next = t.candidate(s, r)
		}
	case c.task.Incarnation != r.Task.Incarnation:
		k.retire(past{incarnation: r.Task.Incarnation, said: said{{s.id, r.Sequence}}, made: t.made(r)})
		t.roster.refuse(r.Task, carriers{s.id}, false, fmt.Sprintf("incarnation %x of task %s, at %s, waits for this name already", c.task.Incarnation, c.task.Name, c.task.Address))
	default:
		c.carriers.add(s.id)
		if r.Said && c.said.fresh(s.id, r.Sequence, t.made(r), c.made) {
			if !c.said.knows(s.id) {
				// It may be one that has come by way of another session already.
				c.from, c.reports = t.now, 0
			}
			c.said.add(s.id, r.Sequence)
			c.state, c.last, c.made = r.State, t.now, max(c.made, t.made(r))
			c.reports++
		}
		if r.State == assignment.TaskDead {
			k.giveUp()
		}
	}
}

func (b *base) candidate(s *distributor, r *Report) *candidate {
	c := &candidate{task: r.Task, identity: r.Identity, state: r.State, said: said{{s.id, r.Sequence}}, reports: 1,
		first: b.now, from: b.now, last: b.now, made: b.made(r), carriers: carriers{s.id}}
	if !r.Said {
		c.reports, c.said = 0, nil
	}
	return c
}

// made is when a report was made: that is what it proves.
func (b *base) made(r *Report) time.Duration { return b.now - max(r.Age, 0) }

// settle lets a waiting incarnation in, or refuses it, when it is clear which.
func (r *roster) settle(k *task) {
	c := k.next
	if c == nil {
		return
	}
	_, stale := k.stale(c.task.Incarnation)
	switch {
	case r.now-c.made >= r.cfg.HeartbeatTimeout:
		k.giveUp() // it has fallen silent itself; should it live, it will report
	case k.alive() && len(k.carriers) > 0:
		if k.report > c.first {
			r.refuseNext(k)
		}
	case stale && !lateRevives && (c.reports < 2 || c.last-c.from < r.cfg.probation()):
		// It may be late news of one that is no more.
	case !k.alive() && r.full() != "":
		k.giveUp()
		r.refuse(c.task, c.carriers, true, r.full())
	case !k.alive() || k.gone:
		if c.task.Incarnation == k.cur.Incarnation {
			r.enter(k, c, Returned, "it reports again, though it "+k.ending())
		} else {
			r.enter(k, c, Restarted, fmt.Sprintf("in the place of incarnation %x, which %s", k.cur.Incarnation, k.ending()))
		}
	}
}

func (k *task) ending() string {
	switch k.fate {
	case silent:
		return "was dead"
	case left:
		return "had left"
	}
	return "has no stream any more"
}

func (r *roster) refuseNext(k *task) {
	c := k.next
	k.giveUp()
	r.refuse(c.task, c.carriers, false, fmt.Sprintf("task %s is running already as incarnation %x at %s", k.cur.Name, k.cur.Incarnation, k.cur.Address))
}

func (r *roster) refuse(x assignment.Task, on carriers, full bool, why string) {
	r.events = append(r.events, Event{Kind: Refused, Task: x.Name, Incarnation: x.Incarnation, Reason: why, Sessions: on, Full: full})
}

func (r *roster) dropCarrier(k *task, s *distributor) {
	if !k.carriers.drop(s.id) {
		return
	}
	// While the Distributor stood still the task could not be heard, and is not to be
	// missed by others now for as long.
	k.heard = max(k.heard, s.speaks)
	if len(k.carriers) == 0 {
		r.ended(k)
	}
}

// onlyThese drops the tasks that a complete report does not name.
func onlyThese(r *roster, s *distributor, reports []Report) {
	type incarnation struct {
		name string
		inc  uint64
	}
	named := make(map[incarnation]bool, len(reports))
	for i := range reports {
		if !reports[i].Disconnected && (!reports[i].Foreign || reports[i].early) {
			named[incarnation{reports[i].Task.Name, reports[i].Task.Incarnation}] = true
		}
	}
	for _, k := range r.tasks {
		if c := k.next; c != nil && !named[incarnation{c.task.Name, c.task.Incarnation}] && c.drop(s.id) {
			k.giveUp()
		}
		if named[incarnation{k.cur.Name, k.cur.Incarnation}] {
			continue
		}
		if slices.Contains(k.carriers, s.id) {
			r.dropCarrier(k, s)
		} else if k.alive() && len(k.carriers) == 0 && k.lostWith == s.name {
			r.ended(k) // it went with this Distributor and has not come back with it
		}
		r.settle(k)
	}
}
