package membership

import (
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Stored tells what the newest stored assignment is, nil if there is none. own
// says that it was made from this table. Otherwise another assigner wrote it:
// tasks that it names and the table does not know are taken over, and so are its
// indexes, whose older holder wins.
func (t *Table) Stored(a *assignment.Assignment, own bool) {
	if !own {
		t.watch = max(t.watch, t.now) // reports may have gone to the assigner that wrote it
	}
	owners := make(map[string]bool)
	if a != nil {
		has, found := make([]bool, a.NumTasks()), false
		for _, o := range a.Columns().Owners {
			has[o] = true
		}
		for i, x := range a.Tasks() {
			owners[x.Name] = has[i]
			found = t.storedTask(x, own) || found
		}
		if !own {
			t.roster.adoptIndexes(a, found)
		}
	}
	for _, k := range t.roster.tasks {
		k.owns = owners[k.cur.Name]
		if k.gone {
			t.roster.ended(k)
		}
	}
}

// storedTask takes in a task of the stored assignment, and reports whether its
// incarnation was not known.
func (t *Table) storedTask(x assignment.Task, own bool) (found bool) {
	k := t.roster.lookup(x.Name)
	if k != nil && !own && k.cur.Incarnation == x.Incarnation {
		k.fresh = false // since when is not known here
		if k.fate == silent && x.State != assignment.TaskDead {
			t.revive(k)
		}
	}
	switch {
	case k == nil && !own:
		k = &task{cur: x, state: x.State, heard: t.now, drained: t.roster.drains[x.Name] == x.Incarnation}
		if x.State == assignment.TaskDead {
			k.fate, k.fateAt = silent, t.now
		}
		t.roster.insert(k)
		t.roster.version++
		return true
	case k == nil:
	case k.cur.Incarnation != x.Incarnation:
		// A stream here may be that of a process which has ended and was not missed
		// yet: what is stored is the record, unless it is older than what is known.
		if !own && (len(k.carriers) == 0 || !k.outlived(x.Incarnation)) {
			t.succeed(k, x)
			return true
		}
	case x.State == assignment.TaskDead:
		if !own && k.alive() && !k.returned {
			// It stays dead even if a Distributor has a stream of it: should it live,
			// it will go on reporting.
			k.fate, k.fateAt, k.carriers = silent, t.now, nil
			t.roster.say(k, Dead, "as another assigner has stored")
		}
	case x.State != assignment.TaskDraining:
		k.returned = false
	case !own && k.alive() && !k.drains():
		// It has said so to another assigner: what is stored is the record, until it is heard.
		k.state = assignment.TaskDraining
		t.roster.say(k, Drained, "as another assigner has stored")
	}
	return false
}

// revive takes back that a task is dead: it was silent here because it spoke to another
// assigner, as what that has stored shows.
func (t *Table) revive(k *task) {
	if k.record.at == k.fateAt { // its death has counted as a failure
		k.record.penalty = max(0, k.record.penalty-1)
	}
	if i := slices.Index(t.freeze.deaths, k.fateAt); i >= 0 {
		t.freeze.deaths = slices.Delete(t.freeze.deaths, i, i+1)
	}
	k.fate, k.returned = living, false
	t.regroup(k)
	t.roster.say(k, Returned, "it lives, as another assigner has stored")
}

// succeed replaces the incarnation that counts by the stored one: another assigner has
// let it in meanwhile.
func (t *Table) succeed(k *task, x assignment.Task) {
	if c := k.next; c != nil && c.task.Incarnation == x.Incarnation && x.State != assignment.TaskDead {
		t.roster.enter(k, c, Restarted, "as another assigner has stored")
		k.fresh = false
		return
	}
	next, index := k.next, k.cur.Index
	k.retire(past{k.cur.Incarnation, k.said, k.report})
	*k = task{cur: x, indexed: k.indexed, state: x.State, heard: t.now, drained: t.roster.drains[x.Name] == x.Incarnation,
		record: k.record, next: next, old: k.old}
	k.cur.Index = index
	if x.State == assignment.TaskDead {
		k.fate, k.fateAt = silent, t.now
	}
	t.roster.say(k, Restarted, "as another assigner has stored")
}

// adoptIndexes gives the stored tasks their stored indexes, and those that had them
// others.
func (r *roster) adoptIndexes(a *assignment.Assignment, differ bool) {
	for _, x := range a.Tasks() {
		k := r.lookup(x.Name)
		differ = differ || k.alive() && !(k.indexed && k.cur.Index == x.Index)
	}
	if !differ {
		return
	}
	before := r.slots
	r.slots = nil
	for _, k := range before {
		if k != nil {
			k.indexed = false
		}
	}
	for _, x := range a.Tasks() {
		for len(r.slots) <= int(x.Index) {
			r.slots = append(r.slots, nil)
		}
		k := r.lookup(x.Name)
		r.slots[x.Index], k.indexed, k.cur.Index = k, true, x.Index
	}
	for i, k := range before {
		switch {
		case k == nil || k.indexed:
		case i < len(r.slots) && r.slots[i] == nil:
			r.take(k, i)
		case k.alive():
			r.number(k)
		}
	}
	r.version++
}

// Tasks is the task table for the next assignment, in order of index. Dead tasks
// keep the place that they may return to.
func (t *Table) Tasks() []assignment.Task {
	out := make([]assignment.Task, 0, len(t.roster.slots))
	for _, k := range t.roster.slots {
		if k != nil {
			x := k.cur
			x.State = k.shown()
			out = append(out, x)
		}
	}
	return slices.Clip(out)
}

// Ages says of each of Tasks how long it has been there to own slices: -1 unless it
// was seen to begin, as of those that another assigner has stored.
func (t *Table) Ages() []time.Duration {
	out := make([]time.Duration, 0, len(t.roster.slots))
	for _, k := range t.roster.slots {
		switch {
		case k == nil:
		case !k.fresh:
			out = append(out, -1)
		case k.since < 0:
			out = append(out, 0)
		default:
			out = append(out, t.now-k.since)
		}
	}
	return out
}
