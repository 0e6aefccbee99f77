package lease_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
)

// drive gives a core events and says what it does, in one line each.
type drive struct {
	t    *testing.T
	core *lease.Core
	now  time.Duration
	rev  int64
}

func newDrive(t *testing.T) *drive {
	d := &drive{t: t, core: lease.NewCore(time.Second)}
	d.want(lease.Event{Kind: lease.Opened, Session: 1})
	return d
}

func describe(a lease.Action) string {
	switch a.Kind {
	case lease.Believe:
		switch h := a.Holding; {
		case h.Guard != 0:
			return "believe " + lease.GuardClaim(h.Guard).String()
		case h.From != 0:
			return "believe " + lease.Claim{From: h.From, To: h.To}.String()
		}
		return "believe nothing"
	case lease.AcquireClaim:
		return "acquire " + a.Claim.String()
	case lease.ReleaseClaim:
		return "release " + a.Claim.String()
	case lease.Fetch:
		return "fetch " + lease.GuardClaim(a.Generation).String()[len("guard "):]
	}
	return "?"
}

func (d *drive) step(valid bool, e lease.Event, want ...string) {
	d.t.Helper()
	var got []string
	for _, a := range d.core.Step(d.now, valid, e) {
		got = append(got, describe(a))
	}
	if !slices.Equal(got, want) {
		d.t.Fatalf("after %+v it does %q, want %q", e, got, want)
	}
}

func (d *drive) want(e lease.Event, want ...string) {
	d.t.Helper()
	d.step(true, e, want...)
}

func (d *drive) seen(g lease.Guard, b lease.Bridge, want ...string) {
	d.t.Helper()
	d.rev++
	d.want(lease.Event{Kind: lease.Looked, Session: 1, Seen: lease.Seen{Revision: d.rev, Guard: g, Bridge: b}}, want...)
}

func (d *drive) acquired(c lease.Claim, want ...string) {
	d.t.Helper()
	d.want(lease.Event{Kind: lease.Acquired, Session: 1, Claim: c}, want...)
}

var (
	guard1   = lease.Guard{Generation: 1, Open: true}
	guard2   = lease.Guard{Generation: 2, Open: true}
	recall1  = lease.Guard{Generation: 1}
	bridge12 = lease.Bridge{From: 1, To: 2, Open: true}
	retire12 = lease.Bridge{From: 1, To: 2}
	none     = lease.Bridge{}
)

// believing brings a core under the guard at 1.
func (d *drive) believing() {
	d.t.Helper()
	d.seen(guard1, none, "fetch 1")
	d.want(lease.Event{Kind: lease.InHand, Generation: 1}, "acquire guard 1")
	d.acquired(lease.GuardClaim(1), "believe guard 1")
}

func TestCoreMakesBeforeItBreaks(t *testing.T) {
	d := newDrive(t)
	d.believing()
	d.seen(guard1, bridge12, "fetch 2")
	d.seen(recall1, bridge12)
	d.want(lease.Event{Kind: lease.InHand, Generation: 2}, "acquire bridge 1-2")
	d.acquired(bridge12.Claim(), "believe bridge 1-2", "release guard 1")
	d.want(lease.Event{Kind: lease.Released, Session: 1, Claim: lease.GuardClaim(1)})
	d.seen(guard2, bridge12, "acquire guard 2")
	d.seen(guard2, retire12)
	d.acquired(lease.GuardClaim(2), "believe guard 2", "release bridge 1-2")
	d.want(lease.Event{Kind: lease.Released, Session: 1, Claim: bridge12.Claim()})
	d.seen(guard2, none)
}

func TestCoreKeepsTheWholeGuardBesideTheBridge(t *testing.T) {
	d := newDrive(t)
	d.believing()
	d.seen(guard1, bridge12, "fetch 2")
	d.want(lease.Event{Kind: lease.InHand, Generation: 2}, "acquire bridge 1-2")
	d.acquired(bridge12.Claim())
	if h := d.core.Holding(); h.Guard != 1 {
		t.Errorf("it believes in %+v while the guard is open", h)
	}
}

func TestCoreLetsGoWhenTheNextIsNotToBeHad(t *testing.T) {
	d := newDrive(t)
	d.believing()
	d.seen(recall1, bridge12, "fetch 2")
	d.want(lease.Event{Kind: lease.NotInHand, Generation: 2, Retry: time.Minute})
	if at, ok := d.core.Wake(); !ok || at != time.Second {
		t.Fatalf("it wakes at %s, %v; its patience ends at 1s", at, ok)
	}
	d.now = time.Second
	d.want(lease.Event{Kind: lease.Tick}, "believe nothing", "release guard 1")
}

func TestCoreReleasesWhatItMayHold(t *testing.T) {
	d := newDrive(t)
	d.seen(guard1, none, "fetch 1")
	d.want(lease.Event{Kind: lease.InHand, Generation: 1}, "acquire guard 1")
	d.want(lease.Event{Kind: lease.Unknown, Session: 1, Claim: lease.GuardClaim(1), Retry: time.Minute})
	d.seen(recall1, bridge12, "fetch 2", "release guard 1")
	d.want(lease.Event{Kind: lease.Unknown, Session: 1, Claim: lease.GuardClaim(1), Release: true, Retry: time.Second})
	d.now = time.Second
	d.want(lease.Event{Kind: lease.Tick}, "release guard 1")
	// The answer to the acquire comes after all: it is let go already.
	d.acquired(lease.GuardClaim(1))
}

func TestCoreHoldsToItsSession(t *testing.T) {
	d := newDrive(t)
	d.seen(guard1, none, "fetch 1")
	d.want(lease.Event{Kind: lease.InHand, Generation: 1}, "acquire guard 1")
	d.want(lease.Event{Kind: lease.Opened, Session: 2})
	d.acquired(lease.GuardClaim(1)) // to session 1
	d.want(lease.Event{Kind: lease.Looked, Session: 2, Seen: lease.Seen{Revision: 9, Guard: guard1}}, "acquire guard 1")
	d.acquired(lease.GuardClaim(1)) // still to session 1
	d.want(lease.Event{Kind: lease.Acquired, Session: 2, Claim: lease.GuardClaim(1)}, "believe guard 1")
	d.want(lease.Event{Kind: lease.Gone, Session: 2}, "believe nothing")
}

func TestCoreSendsNothingPastTheDeadline(t *testing.T) {
	d := newDrive(t)
	d.believing()
	d.rev++
	d.step(false, lease.Event{Kind: lease.Looked, Session: 1, Seen: lease.Seen{Revision: d.rev, Guard: recall1}})
	d.want(lease.Event{Kind: lease.Tick}, "believe nothing", "release guard 1")
}

func TestCoreIgnoresOlderRecords(t *testing.T) {
	d := newDrive(t)
	d.believing()
	d.seen(guard1, bridge12, "fetch 2")
	d.rev -= 2
	d.seen(guard1, none)
	d.want(lease.Event{Kind: lease.InHand, Generation: 2}, "acquire bridge 1-2")
}

// The records alone say which step is next, whatever is wanted in the middle of a
// change, and no other step can be written.
func TestOutcomeRefusesWhatIsNotCalledFor(t *testing.T) {
	for _, c := range []struct {
		records lease.Records
		want    lease.Kind
	}{
		{lease.Records{}, lease.Write},
		{lease.Records{Head: 1}, lease.Boot},
		{lease.Records{Head: 1, Guard: guard1}, lease.Write},
		{lease.Records{Head: 2, Guard: guard1}, lease.Span},
		{lease.Records{Head: 2, Guard: guard1, Bridge: bridge12}, lease.Recall},
		{lease.Records{Head: 2, Guard: recall1, Bridge: bridge12}, lease.Rewrite},
		{lease.Records{Head: 2, Guard: guard2, Bridge: bridge12}, lease.Retire},
		{lease.Records{Head: 2, Guard: guard2, Bridge: retire12}, lease.Close},
		{lease.Records{Head: 2, Guard: guard2}, lease.Write},
	} {
		r := c.records
		if called := lease.Next(lease.State{Records: r}, r.Head+1); called.Kind != c.want {
			t.Errorf("%+v call for %s, want %s", r, called.Kind, c.want)
		}
		for k := lease.Idle; k <= lease.Close; k++ {
			if _, err := (lease.Step{Kind: k, Head: r.Head + 1}).Outcome(r); (err == nil) != (k == c.want) {
				t.Errorf("%+v: %s: %v; called for is %s", r, k, err, c.want)
			}
		}
	}
}

func TestRecordsAsText(t *testing.T) {
	for _, g := range []lease.Guard{{}, guard1, recall1} {
		text, _ := g.MarshalText()
		if (g == lease.Guard{}) {
			text = nil
		}
		var back lease.Guard
		if err := back.UnmarshalText(text); err != nil || back != g {
			t.Errorf("%q reads as %+v, %v", text, back, err)
		}
	}
	for _, c := range []lease.Claim{lease.GuardClaim(7), bridge12.Claim()} {
		text, _ := c.MarshalText()
		var back lease.Claim
		if err := back.UnmarshalText(text); err != nil || back != c {
			t.Errorf("%q reads as %+v, %v", text, back, err)
		}
	}
	for _, text := range []string{"1", "open", "0 open", "-1 open", "1 shut", "1 2 open", "9007199254740992 open", "1 open ", " 1 open"} {
		var g lease.Guard
		if err := g.UnmarshalText([]byte(text)); !errors.Is(err, lease.ErrCorrupt) {
			t.Errorf("guard %q: %v", text, err)
		}
	}
	for _, text := range []string{"2 1 open", "1 1 open", "1 open", "1 2", "1 2 3 open"} {
		var b lease.Bridge
		if err := b.UnmarshalText([]byte(text)); !errors.Is(err, lease.ErrCorrupt) {
			t.Errorf("bridge %q: %v", text, err)
		}
	}
}

func FuzzRecords(f *testing.F) {
	f.Add([]byte("1 open"))
	f.Add([]byte("1 2 recalled"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var g lease.Guard
		if g.UnmarshalText(text) == nil && g != (lease.Guard{}) {
			again, _ := g.MarshalText()
			var back lease.Guard
			if back.UnmarshalText(again) != nil || back != g {
				t.Errorf("%q reads as %+v, written as %q", text, g, again)
			}
		}
		var b lease.Bridge
		if b.UnmarshalText(text) == nil && b != (lease.Bridge{}) && (b.From <= 0 || b.To <= b.From || b.To > assignment.MaxGeneration) {
			t.Errorf("%q reads as %+v", text, b)
		}
		var c lease.Claim
		if c.UnmarshalText(text) == nil && (c.To <= c.From || c.From < 0) {
			t.Errorf("%q reads as %+v", text, c)
		}
	})
}
