package limiter_test

import (
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/limiter"
)

// subject counts how often it was notified.
type subject struct{ notified int }

func (s *subject) Notify() { s.notified++ }

// A subject is notified when one of its subscribers may be sent the whole, and finds out
// which.
func TestWholes(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	w := limiter.NewWholes[*subject](2, 100)
	a, b := &subject{}, &subject{}
	if !w.Acquire(now, 1, "x", 1, a, 1000) || !w.Acquire(now, 2, "x", 1, a, 1000) {
		t.Fatal("the first two may not be sent it")
	}
	if w.Acquire(now, 3, "x", 1, a, 10) || w.Acquire(now, 4, "y", 1, b, 10) || w.Acquire(now, 5, "x", 0, b, 10) {
		t.Fatal("a third may, too")
	}
	if waiting, next := w.Look(); waiting != 3 || !next.Equal(now.Add(limiter.WholeFor)) || a.notified != 1 || b.notified != 2 {
		t.Errorf("%d wait until %s; %d and %d were notified", waiting, next, a.notified, b.notified)
	}
	w.Release(now, 1)
	if got := w.Granted(now, b); !slices.Equal(got, []uint64{4}) || w.Granted(now, a) != nil || b.notified != 3 {
		t.Errorf("of b %v may be sent it, want 4, whose client is sent none", got)
	}
	w.Release(now, 3) // does not need it any more
	now = now.Add(limiter.WholeFor)
	w.Forget(now, b) // and gives 5's place back
	for _, id := range []uint64{6, 7} {
		if !w.Acquire(now, id, "x", 1, a, 1000) {
			t.Errorf("%d may not be sent it", id)
		}
	}
	if waiting, _ := w.Look(); waiting != 0 || w.Waits(5) {
		t.Errorf("%d wait in the end", waiting)
	}
}
