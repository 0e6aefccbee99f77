package distributor

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// heardAs waits, and checks what slicelets are told of whether they are heard.
func heardAs(t *testing.T, s *fakeSub, after time.Duration, unacknowledged bool, when string) {
	t.Helper()
	time.Sleep(after)
	if got := s.lastStatus().GetUnacknowledged(); got != unacknowledged {
		t.Errorf("%s after %s: unacknowledged %t", when, after, got)
	}
}

// hearing is two assigners, the first of which is preferred, and a slicelet.
func hearing(t *testing.T, n *network) (f1, f2 *fakeAssigner, s *fakeSub) {
	f1, f2 = newFakeAssigner(t, "a1"), newFakeAssigner(t, "a2")
	a := firstOf(t, testJob, testStore, baseGen, 10)
	for f, address := range map[*fakeAssigner]string{f1: assigner1, f2: assigner2} {
		f.listen(true)
		f.start(n, address)
		f.set(a)
		f.prefer(1, "a1")
	}
	w := newWorld(t, n, assigner1, assigner2)
	time.Sleep(time.Second)
	return f1, f2, subscribe(t, w.cc, sliceletHello("s1", 1), nil)
}

// In whichever direction nothing comes through, the preferred assigner says nothing of
// hearing this Distributor, though the stream stands.
func TestUnacknowledgedIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f1, f2, s := hearing(t, newNetwork())
		heardAs(t, s, 10*time.Second, false, "both hear it")
		f2.listen(false)
		heardAs(t, s, 10*time.Second, false, "one that is not preferred is deaf")
		f1.listen(false)
		heardAs(t, s, fanout.UnacknowledgedAfter-time.Second, false, "the preferred one is deaf")
		heardAs(t, s, 2*time.Second, true, "the preferred one is deaf")
		f1.listen(true)
		heardAs(t, s, time.Second, false, "it hears again")
		// Another takes over that hears nothing either.
		f1.prefer(2, "a2")
		heardAs(t, s, fanout.UnacknowledgedAfter-time.Second, false, "a deaf one has taken over")
		heardAs(t, s, 2*time.Second, true, "a deaf one has taken over")
	})
}

// A dead assigner may be replaced soon; with none in its place none hears.
func TestUnacknowledgedWithoutPreferred(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f1, f2, s := hearing(t, newNetwork())
		heardAs(t, s, 10*time.Second, false, "both hear it")
		f1.stop()
		heardAs(t, s, fanout.UnacknowledgedAfter-time.Second, false, "the preferred one has died")
		f2.prefer(2, "a2")
		heardAs(t, s, 10*time.Second, false, "the other has taken over")
		f2.prefer(3, "a3")
		heardAs(t, s, fanout.UnacknowledgedAfter+time.Second, true, "one is preferred that cannot be reached")
		f2.prefer(4, "a2")
		heardAs(t, s, time.Second, false, "the other is preferred again")
		f2.stop()
		heardAs(t, s, fanout.UnacknowledgedAfter+time.Second, true, "all have died")
	})
}

// An assigner that has just said that it hears is believed to have done so until its
// stream ends: another may need from then on almost as long as fanout.UnacknowledgedAfter to take its
// place.
func TestUnacknowledgedCountsFromTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f1, _, s := hearing(t, newNetwork())
		heardAs(t, s, 10*time.Second, false, "both hear it")
		f1.listen(false)
		heardAs(t, s, 1400*time.Millisecond, false, "the preferred one is about to speak")
		f1.stop()
		heardAs(t, s, fanout.UnacknowledgedAfter-100*time.Millisecond, false, "it has died")
		heardAs(t, s, 200*time.Millisecond, true, "it has died")
	})
	inBubble(t, func(t *testing.T) {
		f1, _, s := hearing(t, newNetwork())
		f1.listen(false)
		heardAs(t, s, fanout.UnacknowledgedAfter-time.Second, false, "the preferred one has been silent for long")
		f1.stop()
		heardAs(t, s, 1100*time.Millisecond, true, "it has died")
	})
}

// That slicelets are to look for another is said where there are any.
func TestUnacknowledgedIsLogged(t *testing.T) {
	for warnings, hello := range []*slicerv1.Hello{clerkHello("c1"), sliceletHello("s1", 1)} {
		inBubble(t, func(t *testing.T) {
			n := newNetwork()
			f := n.assigner(t, "a1", assigner1)
			f.set(firstOf(t, testJob, testStore, baseGen, 10))
			f.prefer(1, "a1")
			d := n.node(t, "d1")
			s := subscribe(t, d.cc, hello, nil)
			heardAs(t, s, 10*time.Second, false, "one that is preferred hears it")
			f.stop()
			heardAs(t, s, fanout.UnacknowledgedAfter+time.Second, true, "it has died")
			if got := d.said.count("slicelets are to look for another"); got != warnings {
				t.Errorf("%s: %d warnings, want %d", hello.GetRole(), got, warnings)
			}
		})
	}
}

// One that does not say whether it hears is older: it is believed to for as long as the
// stream stands.
func TestOlderAssignerHears(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.set(firstOf(t, testJob, testStore, baseGen, 10))
		f.prefer(1, "a1")
		w := newWorld(t, n, assigner1)
		s := subscribe(t, w.cc, sliceletHello("s1", 1), nil)
		heardAs(t, s, 20*time.Second, false, "an older one is preferred")
		f.stop()
		heardAs(t, s, fanout.UnacknowledgedAfter+time.Second, true, "it has died")
	})
}
