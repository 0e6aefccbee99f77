package slicelet

import (
	"testing"
	"testing/synctest"
)

// A key moves away between the look at the view and the reading of the clock: the
// lease is still held then, and the key is another's.
func TestOwnershipIsThatOfTheNewestView(t *testing.T) {
	for name, owned := range map[string]func(s *Slicelet, h Handle) bool{
		"AssignedContinuously": func(_ *Slicelet, h Handle) bool { return h.AssignedContinuously() },
		"Handle":               func(s *Slicelet, h Handle) bool { return s.Handle(keyIn(1, 4)).Owned() },
		"IsAffinitized":        func(s *Slicelet, h Handle) bool { return s.IsAffinitized(keyIn(1, 4)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRealm(t, "a", "b")
				defer r.stop()
				a, b := r.member("a"), r.member("b")
				r.put("aabb")
				r.advance()
				h := a.s.Handle(keyIn(1, 4))
				moves := func() {
					r.put("abbb")
					r.advance()
				}
				a.meanwhile.Store(&moves)
				if owned(a.s, h) || !b.s.Handle(keyIn(1, 4)).Owned() {
					t.Error("owned by the task before, and its clock was read when another owned it")
				}
			})
		})
	}
}
