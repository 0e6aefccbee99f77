package slicelet

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
)

// sendParts makes the servers of tests send parts. Tests of this package do not run in parallel.
var sendParts bool

// startServer starts the Distributor of a test.
func startServer(n *subscribertest.Network) *subscribertest.Server {
	s := n.Start(distributor)
	if sendParts {
		s.SendParts()
	}
	return s
}

// What a slicelet does by the whole it does by its part.
func TestWithParts(t *testing.T) {
	sendParts = true
	defer func() { sendParts = false }()
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"ConsistentMode", TestConsistentMode},
		{"SplitsAndMergesKeepHandles", TestSplitsAndMergesKeepHandles},
		{"LostLease", TestLostLease},
		{"StoppedProcess", TestStoppedProcess},
		{"DrainInConsistentMode", TestDrainInConsistentMode},
		{"DrainOfALoneTaskInConsistentMode", TestDrainOfALoneTaskInConsistentMode},
		{"ConsistentModeWithSlicerDead", TestConsistentModeWithSlicerDead},
		{"TokensDoNotFallWhenALeaseIsLost", TestTokensDoNotFallWhenALeaseIsLost},
		{"FetchesWhatIsInForce", TestFetchesWhatIsInForce},
		{"BridgeBeforeGuard", TestBridgeBeforeGuard},
		{"LeasesThatCannotBeHad", TestLeasesThatCannotBeHad},
		{"MeteringInConsistentMode", TestMeteringInConsistentMode},
		{"Drain", TestDrain},
		{"DrainOfALoneTask", TestDrainOfALoneTask},
		{"DrainOfAnIdleTask", TestDrainOfAnIdleTask},
		{"OwnershipIsThatOfTheNewestView", TestOwnershipIsThatOfTheNewestView},
		{"ChangeNamesTheOthers", TestChangeNamesTheOthers},
		{"ConsistentChangeNamesTheOthers", TestConsistentChangeNamesTheOthers},
		{"RestartWithSlicerDead", TestRestartWithSlicerDead},
		{"RestartWithSlicerAlive", TestRestartWithSlicerAlive},
		{"Ownership", TestOwnership},
		{"Listener", TestListener},
		{"ListenLate", TestListenLate},
		{"CloseTellsWhatHasDeparted", TestCloseTellsWhatHasDeparted},
		{"Starting", TestStarting},
		{"Storm", TestStorm},
	} {
		t.Run(test.name, test.run)
	}
}

// A busy listener is told where keys have gone when they went, not where they have gone since.
func TestMergedChangeByParts(t *testing.T) {
	sendParts = true
	defer func() { sendParts = false }()
	synctest.Test(t, func(t *testing.T) {
		c, j := newCluster(t, nil), &journal{gate: make(chan struct{})}
		defer c.stop()
		c.s.Listen(j)
		c.owned(1, "m", "o", "o", "m")
		if part := c.s.Assignment().Part(); part != c.s.Task() {
			t.Fatalf("the assignment is the part for %q", part)
		}
		c.owned(2, "m", "t", "o", "o") // 3 goes to other
		c.owned(3, "t", "m", "m", "t") // 0 goes, 1 comes from third, 2 from other; 3 goes on to third
		c.owned(4, "m", "m", "o", "t") // 0 is back, 2 has come and gone
		close(j.gate)
		j.expect(t, "1 +0 > +3 >", "4 +0 t> +1 t> -0 > -3 >o")
	})
}

// seen is what a slicelet has seen, and what it makes of it.
type seen struct{ views []*view }

func (s *seen) now() *view { return s.views[len(s.views)-1] }

func (s *seen) see(a *assignment.Assignment) {
	s.views = append(s.views, s.now().next(stateOf(a), nil, me))
}

// TestPartsAgainstTheWhole has a slicelet that is sent wholes and one that is sent parts, or now
// and then a whole, as by an older Distributor, see the same of a past in which generations are
// skipped, stores are reset, and tasks are restarted: what they own, since when, what has
// changed, and whose it was and is, is the same. Only whose keys were or are is less well known
// if the sender did not know what the slicelet held.
func TestPartsAgainstTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPast(t)
		whole, part := &seen{[]*view{emptyView()}}, &seen{[]*view{emptyView()}}
		for i, a := range p.all {
			if rapid.IntRange(0, 3).Draw(t, "skip") == 0 {
				continue
			}
			held := part.now().a
			if before := whole.now().a; before != nil && !a.Newer(before) {
				continue
			}
			got := a
			known := rapid.IntRange(0, 3).Draw(t, "known") > 0
			if rapid.IntRange(0, 5).Draw(t, "whole") > 0 {
				got = assignment.NewCut(a).Part(me.Name)
				if held != nil && known {
					got, _ = assignment.NewCut(a).Since(assignment.NewCut(whole.now().a), me.Name)
				}
			} else if held != nil {
				known = held.Part() == ""
			}
			exact := held == nil || known && held.StoreID() == a.StoreID() // a Distributor holds no past of another store
			whole.see(a)
			part.see(got)
			w, x := whole.now(), part.now()
			if w.mine != x.mine || w.provisional != x.provisional || !slices.Equal(w.runs, x.runs) || !slices.Equal(w.token, x.token) ||
				!slices.Equal(w.own.entries, x.own.entries) || (w.epoch == whole.views[len(whole.views)-2].epoch) != (x.epoch == part.views[len(part.views)-2].epoch) {
				t.Fatalf("generation %d: by the whole %v (epoch %d), by the part %v (epoch %d)", a.Generation(), w.runs, w.epoch, x.runs, x.epoch)
			}
			last := len(whole.views) - 2
			compareChanges(t, fmt.Sprintf("generation %d (%d)", a.Generation(), i), w.changed(whole.views[last], me.Name), x.changed(part.views[last], me.Name), exact, nil)
			// A listener that was told long ago is told where keys were at some moment since.
			old := rapid.IntRange(0, last).Draw(t, "told")
			since := whole.views[old+1:]
			compareChanges(t, fmt.Sprintf("generation %d (%d), told %d", a.Generation(), i, old), w.changed(whole.views[old], me.Name), x.changed(part.views[old], me.Name), false, since)
		}
	})
}

// compareChanges compares two changes point by point. Unless they are to be exact a part may tell
// of no tasks, and where keys have gone as it was in one of the views since.
func compareChanges(t *rapid.T, when string, whole, part Change, exact bool, since []*view) {
	if whole.Generation != part.Generation {
		t.Fatalf("%s: generation %d, by the part %d", when, whole.Generation, part.Generation)
	}
	for i := range points {
		for _, c := range []struct {
			what        string
			whole, part []Range
			from, to    bool
		}{{"arrived", whole.Arrived, part.Arrived, exact, true}, {"departed", whole.Departed, part.Departed, true, exact}} {
			w, inWhole := rangeAt(c.whole, point(i))
			x, inPart := rangeAt(c.part, point(i))
			then := slices.ContainsFunc(since, func(v *view) bool {
				return inWhole && slices.Equal(othersIn([]assignment.Slice{{Start: point(i), End: point(i) + 1}}, me.Name, v.a)[0].by, x.To)
			})
			if inWhole != inPart || !agree(w.From, x.From, c.from) || !agree(w.To, x.To, c.to) && !then {
				t.Fatalf("%s: %s at point %d: %t from %v to %v, by the part %t from %v to %v", when, c.what, i, inWhole, w.From, w.To, inPart, x.From, x.To)
			}
		}
	}
}

func agree(whole, part []assignment.Task, exact bool) bool {
	return slices.Equal(whole, part) || !exact && len(part) == 0
}

func rangeAt(rs []Range, k assignment.SliceKey) (Range, bool) {
	i := slices.IndexFunc(rs, func(r Range) bool { return r.Contains(k) })
	if i < 0 {
		return Range{}, false
	}
	return rs[i], true
}
