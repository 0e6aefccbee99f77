package membership

import (
	"fmt"

	"github.com/slicer-project/slicer/assignment"
)

// number gives a task the smallest index that is free. It refuses the task and
// returns false when there is none.
func (t *Table) number(k *task) bool {
	for i, o := range t.slots {
		if t.free(o) {
			t.take(k, i)
			return true
		}
	}
	if len(t.slots) >= assignment.MaxTasks {
		t.refuse(k.cur, k.carriers, true, fmt.Sprintf("the job has %d tasks, more are not allowed", len(t.slots)))
		return false
	}
	t.slots = append(t.slots, nil)
	t.take(k, len(t.slots)-1)
	return true
}

// free reports whether a new name may have the index that o holds.
func (t *Table) free(o *task) bool { return o == nil || !o.alive() && !o.owns }

// take moves a task to an index. A task that held it has it no more.
func (t *Table) take(k *task, i int) {
	if o := t.slots[i]; o != nil && o != k {
		o.indexed = false
	}
	if k.indexed {
		t.slots[k.cur.Index] = nil
	}
	t.slots[i], k.indexed, k.cur.Index = k, true, uint32(i)
}

// Compact closes one hole if there are too many, and forgets tasks that left long ago.
// Call it when the task table may change without hurry.
func (t *Table) Compact() {
	for n := len(t.slots); n > 0 && t.hole(t.slots[n-1]); n-- {
		if o := t.slots[n-1]; o != nil {
			o.indexed = false
			t.version++
		}
		t.slots = t.slots[:n-1]
	}
	holes, lowest := 0, -1
	for i, o := range t.slots {
		if t.hole(o) {
			if holes++; lowest < 0 {
				lowest = i
			}
		}
	}
	if last := len(t.slots) - 1; holes*10 > len(t.slots) && t.slots[last].alive() {
		k := t.slots[last]
		t.take(k, lowest)
		t.slots = t.slots[:last]
		t.say(k, Renumber, "to index %d, %d of %d indexes were free", lowest, holes, last+1)
	}
	t.forget()
}

// hole reports whether an index has been free for long enough.
func (t *Table) hole(o *task) bool {
	return t.free(o) && (o == nil || t.now-o.fateAt >= t.cfg.HoleAge)
}

// forget drops names that have neither an index nor a living incarnation.
func (t *Table) forget() {
	keep := t.tasks[:0]
	for _, k := range t.tasks {
		if k.alive() || k.indexed || k.next != nil || t.now-k.fateAt < 10*t.cfg.HoleAge {
			keep = append(keep, k)
		}
	}
	clear(t.tasks[len(keep):])
	t.tasks = keep
}
