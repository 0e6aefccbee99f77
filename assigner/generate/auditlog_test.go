package generate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// A freeze that ends because the tasks stay away is noted, as its beginning is. The
// round that follows is for the sake of the dead, whatever was ordered meanwhile.
func TestVanishingIsNoted(t *testing.T) {
	b := newBraked(t, 4)
	b.vanishing()
	for _, name := range []string{"t0", "t1", "t2"} {
		delete(b.tasks, name)
	}
	b.pass(6 * time.Second)
	b.pin(assignment.Slice{Start: hotKey, End: hotKey + 1}, "t3")
	n := len(b.entries)
	b.pass(3*time.Minute + 2*time.Second)
	want := []string{
		froze + ": 3 of 5 tasks fell silent within 6s: none is declared dead for 3m0s, or until they return",
		thawed + ": after 3m0s: 3 tasks are still silent, and taken for dead",
	}
	if !slices.Equal(b.noted, want) {
		t.Errorf("noted is %q, want %q", b.noted, want)
	}
	if len(b.entries) == n {
		t.Fatal("nobody takes over from the dead")
	}
	e := b.entries[n]
	if !strings.HasPrefix(e.Why, "membership: ") || !strings.Contains(e.Why, "t0 dead") {
		t.Errorf("the reason is %q", e.Why)
	}
	dead := 0
	for _, d := range e.Decisions {
		if d.Kind == "reassign" && slices.Contains([]string{"t0", "t1", "t2"}, d.From) && d.Reason != "pinned" {
			if dead++; d.Reason != "task dead" {
				t.Errorf("%+v", d)
			}
		}
	}
	if dead == 0 {
		t.Errorf("no decision is about a dead task: %+v", e.Decisions)
	}
	if !pinned(b.stored, b.overrides.Pins[0].Slice, b.stored.Lookup(hotKey).At(0)) {
		t.Error("the pin was not carried out")
	}
	for _, e := range b.entries[n+1:] {
		if strings.HasPrefix(e.Why, "order") {
			t.Errorf("an entry says %q, though nothing was left to do", e.Why)
		}
	}
}

// That tasks are heard again is noted, and what an operator lifts is left to the order.
func TestReturnIsNoted(t *testing.T) {
	b := newBraked(t, 4)
	b.vanishing()
	gone := map[string]*process{}
	for _, name := range []string{"t0", "t1", "t2"} {
		gone[name] = b.tasks[name]
		delete(b.tasks, name)
	}
	b.pass(6 * time.Second)
	for name, p := range gone {
		b.tasks[name] = p
	}
	b.pass(3 * time.Second)
	if len(b.noted) != 2 || b.noted[1] != thawed+": 5 of 5 tasks are heard again" {
		t.Errorf("noted is %q", b.noted)
	}
	for name := range gone {
		delete(b.tasks, name)
	}
	b.pass(6 * time.Second)
	b.unfreeze()
	b.pass(3 * time.Second)
	if len(b.noted) != 3 || b.core.View(b.now()).Frozen() {
		t.Errorf("noted is %q, frozen: %v", b.noted, b.core.View(b.now()).Frozen())
	}
}

// A freeze by order lasts for its time from when it was seen, whatever the wall clock
// of the assigner says, and its end is noted.
func TestFreezeIgnoresWallClocks(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour} {
		b := newBraked(t, 7)
		b.freeze(time.Minute)
		b.skew = skew
		b.take() // an assigner that sees it for the first time
		delete(b.tasks, "t1")
		b.pass(time.Second)
		b.mustHold = true
		b.pass(55 * time.Second)
		if !b.frozen() || b.core.View(b.now()).Overrides().Freeze == nil {
			t.Fatalf("with a clock that is %s ahead the freeze ends early", skew)
		}
		b.mustHold = false
		b.pass(10 * time.Second)
		if b.frozen() || len(b.noted) != 1 || b.noted[0] != elapsed+": its 1m0s have passed" {
			t.Errorf("with a clock that is %s ahead: frozen %v, noted %q", skew, b.frozen(), b.noted)
		}
		if pos, ok := b.stored.Position("t1"); ok && owns(b.stored, pos) {
			t.Error("a dead task owns slices after the freeze")
		}
	}
}

// A store that takes no entries keeps no assigner from deciding, and they wait, so many.
func TestNotesWait(t *testing.T) {
	b := newBraked(t, 8)
	b.noteErr = errors.New("out of order")
	for range 2 * maxAuditLog {
		b.core.overrides.auditLog = append(b.core.overrides.auditLog, Audit{Action: "older"})
	}
	b.vanishing()
	for _, name := range []string{"t0", "t1", "t2"} {
		delete(b.tasks, name)
	}
	b.pass(6 * time.Second)
	if n := b.core.overrides.auditLog; len(n) != maxAuditLog || n[len(n)-1].Action != froze {
		t.Fatalf("%d entries wait: %+v", len(n), n)
	}
	n := len(b.entries)
	b.pass(3*time.Minute + 2*time.Second)
	if len(b.entries) == n {
		t.Error("nobody takes over from the dead")
	}
	b.noteErr = nil
	b.pass(40 * time.Second)
	if len(b.core.overrides.auditLog) > 0 || !strings.HasPrefix(b.noted[len(b.noted)-1], thawed) {
		t.Errorf("%d entries wait, noted is %q", len(b.core.overrides.auditLog), b.noted)
	}
	b.noteErr = store.ErrNotFound // the job has gone
	b.core.overrides.auditLog = []Audit{{Action: "too late"}}
	b.pass(time.Second)
	if len(b.core.overrides.auditLog) > 0 {
		t.Error("an entry waits for a job that is gone")
	}
}
