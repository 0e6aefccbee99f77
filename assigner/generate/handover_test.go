package generate

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// hold has time pass until something is to be written, which is then on its way.
func (b *braked) hold() Write {
	for end := b.at + time.Minute; b.at < end; {
		b.at += 100 * time.Millisecond
		if b.at%time.Second == 0 {
			b.beat(false)
		}
		for range 20 {
			action, _ := b.core.Next(b.now())
			switch a := action.(type) {
			case Load:
				b.core.Loaded(b.now(), Loaded{Exists: true, Job: b.job, StoreID: 7, Assignment: b.stored})
				continue
			case *Plan:
				b.core.Planned(b.now(), a.Run())
				continue
			case Write:
				return a
			}
			break
		}
	}
	b.Fatal("nothing is written")
	return Write{}
}

// What an assigner has decided before it was deposed for a moment is news to the table
// that it has made since: a death that it stored is a death, whenever it learns that it has
// stored it, and whatever a report that was held up says.
func TestAnswerAfterAHandover(t *testing.T) {
	for name, answered := range map[string]func(b *braked, t4 *process, answer func()){
		"after it": func(b *braked, t4 *process, answer func()) {
			b.core.Preferred(b.now(), "me")
			b.beat(true) // the Distributor has heard of that
			answer()
		},
		"in it": func(b *braked, t4 *process, answer func()) {
			b.tasks["t4"] = t4
			b.beat(true) // its last report comes late
			delete(b.tasks, "t4")
			answer()
			b.core.Preferred(b.now(), "me")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBraked(t, 1)
			t4 := b.tasks["t4"]
			delete(b.tasks, "t4")
			state := func(a *assignment.Assignment) assignment.TaskState {
				pos, ok := a.Position("t4")
				if !ok {
					t.Fatal("t4 is not in the assignment")
				}
				return a.Task(pos).State
			}
			w := b.hold()
			for state(w.Next) != assignment.TaskDead {
				b.core.Written(b.now(), b.write(w))
				w = b.hold()
			}
			b.core.Preferred(b.now(), "another")
			answered(b, t4, func() { b.core.Written(b.now(), b.write(w)) })
			for range 20 {
				b.pass(100 * time.Millisecond)
				if got := state(b.stored); got != assignment.TaskDead {
					t.Fatalf("t4 is %s in generation %d, %s after it was stored as dead", got, b.stored.Generation(), b.at)
				}
			}
		})
	}
}

// A Distributor sees no reason to say once more which tasks it carries when an assigner
// that it takes for preferred was in doubt itself for a moment. Whatever happens in that
// moment, the assigner need not wait for it.
func TestMomentOfDoubt(t *testing.T) {
	for name, happens := range map[string]func(b *braked){
		"nothing": func(*braked) {},
		"another Distributor attaches": func(b *braked) {
			b.core.Attach(b.now(), 2, "e")
			b.core.Reports(b.now(), 2, true, nil)
		},
		"one leaves": func(b *braked) { b.core.Detach(b.now(), 2) },
		"another assigner writes": func(b *braked) {
			c := b.stored.Columns()
			h := assignment.Header{Job: "job", StoreID: 7, Generation: b.stored.Generation() + 1}
			var tasks []assignment.Task
			for _, x := range b.stored.Tasks() {
				tasks = append(tasks, x)
			}
			next, err := assignment.Successor(b.stored, h, tasks, assignment.Placement{Starts: c.Starts, Offsets: c.Offsets, Owners: c.Owners})
			if err != nil {
				t.Fatal(err)
			}
			b.stored = next
			b.core.StoreChanged(b.now())
			b.drive()
		},
	} {
		b := newBraked(t, 1)
		b.core.Preferred(b.now(), "another")
		happens(b)
		b.core.Preferred(b.now(), "me")
		delete(b.tasks, "t4")
		for range 8 { // 2 s for Distributors, 3 s of silence
			b.pass(time.Second)
			b.core.Heard(b.now(), 2, b.at)
		}
		if pos, ok := b.stored.Position("t4"); !ok || b.stored.Task(pos).State != assignment.TaskDead {
			t.Errorf("%s: t4 has been silent for 8 s, and is not dead: %s", name, b.core.View(b.now()).Holding())
		}
	}
}

// A Distributor that has turned to another assigner, as one does that knows sooner that this
// one is not preferred, says nothing of tasks here for as long: they are not silent. When it
// has turned back they are.
func TestDistributorTurnsAway(t *testing.T) {
	b := newBraked(t, 1)
	b.core.Wanted(b.now(), 1, true)
	b.pass(time.Second)
	b.core.Wanted(b.now(), 1, false)
	dead := func(name string) bool {
		pos, ok := b.stored.Position(name)
		return !ok || b.stored.Task(pos).State == assignment.TaskDead
	}
	for range 80 {
		b.at += 100 * time.Millisecond
		b.core.Heard(b.now(), 1, b.at)
		b.drive()
		for _, name := range b.names() {
			if dead(name) {
				t.Fatalf("%s is dead %s after its Distributor has turned away", name, b.at)
			}
		}
	}
	b.core.Wanted(b.now(), 1, true)
	delete(b.tasks, "t4")
	b.beat(true)
	b.pass(8 * time.Second)
	if dead("t1") || !dead("t4") {
		t.Errorf("8 s after it has turned back t1 is dead: %t, and t4, which is silent: %t", dead("t1"), dead("t4"))
	}
}
