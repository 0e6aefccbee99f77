package membership

import (
	"fmt"

	"github.com/slicer-project/slicer/assignment"
)

// number gives a task the smallest index that is free. It refuses the task and
// returns false when there is none.
func (r *roster) number(k *task) bool {
	for i, o := range r.slots {
		if r.free(o) {
			r.take(k, i)
			return true
		}
	}
	if len(r.slots) >= assignment.MaxTasks {
		r.refuse(k.cur, k.carriers, true, fmt.Sprintf("the job has %d tasks, more are not allowed", len(r.slots)))
		return false
	}
	r.slots = append(r.slots, nil)
	r.take(k, len(r.slots)-1)
	return true
}

// free reports whether a new name may have the index that o holds.
func (r *roster) free(o *task) bool { return o == nil || !o.alive() && !o.owns }

// take moves a task to an index. A task that held it has it no more.
func (r *roster) take(k *task, i int) {
	if o := r.slots[i]; o != nil && o != k {
		o.indexed = false
	}
	if k.indexed {
		r.slots[k.cur.Index] = nil
	}
	r.slots[i], k.indexed, k.cur.Index = k, true, uint32(i)
}

// Compact closes one hole if there are too many, and forgets tasks that left long ago.
// Call it when the task table may change without hurry.
func (t *Table) Compact() { t.roster.compact() }

func (r *roster) compact() {
	for n := len(r.slots); n > 0 && r.hole(r.slots[n-1]); n-- {
		if o := r.slots[n-1]; o != nil {
			o.indexed = false
			r.version++
		}
		r.slots = r.slots[:n-1]
	}
	holes, lowest := 0, -1
	for i, o := range r.slots {
		if r.hole(o) {
			if holes++; lowest < 0 {
				lowest = i
			}
		}
	}
	if last := len(r.slots) - 1; holes*10 > len(r.slots) && r.slots[last].alive() {
		k := r.slots[last]
		r.take(k, lowest)
		r.slots = r.slots[:last]
		r.say(k, Renumber, "to index %d, %d of %d indexes were free", lowest, holes, last+1)
	}
	r.forget()
}

// hole reports whether an index has been free for long enough.
func (r *roster) hole(o *task) bool {
	return r.free(o) && (o == nil || r.now-o.fateAt >= r.cfg.HoleAge)
}

// forget drops names that have neither an index nor a living incarnation.
func (r *roster) forget() {
	keep := r.tasks[:0]
	for _, k := range r.tasks {
		if k.alive() || k.indexed || k.next != nil || r.now-k.fateAt < 10*r.cfg.HoleAge {
			keep = append(keep, k)
		}
	}
	clear(r.tasks[len(keep):])
	r.tasks = keep
}
