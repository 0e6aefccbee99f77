package generate

import (
	"errors"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment/store"
)

// Nothing is begun that cannot be carried out: who is excluded takes no slices over.
func TestDrainOfTheLastThatIsNotExcluded(t *testing.T) {
	b := newBraked(t, 3)
	b.pass(5 * time.Second)
	b.order(func(c *store.Controls, s store.Stamp) {
		for _, name := range b.names() {
			if name != "t0" && name != "t1" {
				c.Exclude = append(c.Exclude, store.Exclusion{Stamp: s, Order: c.Version, Task: name})
			}
		}
	})
	b.pass(3 * time.Second)
	drain := func(task string, undo bool) error {
		defer b.pass(3 * time.Second)
		return b.core.Drain(b.now(), task, undo)
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
	if _, ok := b.core.View(b.now()).Drained("t0", false); !ok {
		t.Error(b.core.View(b.now()).Holding())
	}
}
