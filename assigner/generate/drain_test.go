package generate

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment/store"
)

// Nothing is begun that cannot be carried out: a task that is excluded takes no slices
// over.
func TestDrainOfTheLastThatIsNotExcluded(t *testing.T) {
	b := newBraked(t, 3)
	b.pass(5 * time.Second)
	b.order(func(c *store.Overrides, s store.Stamp) {
		for _, name := range b.names() {
			if name != "t0" && name != "t1" {
				c.Exclude = append(c.Exclude, store.Exclusion{Stamp: s, Order: c.Version, Task: name})
			}
		}
	})
	b.pass(3 * time.Second)
	drain := func(task string, undo bool) error {
		defer b.pass(3 * time.Second)
		return b.drain(task, undo)
	}
	if err := drain("t1", false); err != nil {
		t.Fatal(err)
	}
	before := b.stored.Generation()
	want := "not possible in the task's state: no other task is running that could take the slices of t0 and is not excluded"
	if err := drain("t0", false); !errors.Is(err, membership.ErrState) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := drain("nobody", false); !errors.Is(err, membership.ErrUnknown) {
		t.Error(err)
	}
	if err := drain("t1", false); err != nil {
		t.Errorf("once more: %v", err)
	}
	if got := b.stored.Generation(); got != before {
		t.Errorf("generation %d was written, after %d", got, before)
	}
	if err := drain("t1", true); err != nil {
		t.Fatal(err)
	}
	if err := drain("t0", false); err != nil {
		t.Error(err)
	}
	if _, ok, why, _ := b.core.View(b.now()).CarriedOut(b.overrides.Version); !ok {
		t.Error(why)
	}
}

// A drain ends with its incarnation, which the history says, and outlives the assigner.
func TestDrainEndsWithItsIncarnation(t *testing.T) {
	b := newBraked(t, 4)
	if err := b.drain("t1", false); err != nil {
		t.Fatal(err)
	}
	b.pass(3 * time.Second)
	b.take()
	b.pass(10 * time.Second)
	if len(b.overrides.Drains) != 1 || len(b.noted) > 0 || !Drained(b.stored, "t1") {
		t.Fatalf("after a takeover: drains %v, noted %q", b.overrides.Drains, b.noted)
	}
	b.start("t1")
	b.pass(10 * time.Second)
	if len(b.overrides.Drains) > 0 || len(b.noted) != 1 || !strings.HasPrefix(b.noted[0], "end of the drain of t1: it has restarted as incarnation") {
		t.Errorf("after a restart: drains %v, noted %q", b.overrides.Drains, b.noted)
	}
	if Drained(b.stored, "t1") {
		t.Error("the new incarnation drains, too")
	}
	if err := b.drain("t2", false); err != nil {
		t.Fatal(err)
	}
	b.pass(time.Second)
	delete(b.tasks, "t2")
	b.pass(10 * time.Second)
	if len(b.overrides.Drains) > 0 || len(b.noted) != 2 || !strings.HasPrefix(b.noted[1], "end of the drain of t2: it ") {
		t.Errorf("after a death: drains %v, noted %q", b.overrides.Drains, b.noted)
	}
}
