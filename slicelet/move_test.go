package slicelet_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/slicertest"
)

// OnMove tells each once, when its key has moved, and not before; the rest when the slicelet closes.
func TestOnMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := slicertest.New(t)
		s := env.Slicelet(slicelet.Config{Job: "job", Task: "a"})
		assign := func(key, task string) {
			env.Assign("job", slicertest.Key(key, task))
			synctest.Wait()
		}
		env.Assign("job", slicertest.Spread("a"), slicertest.Key("away", "b"), slicertest.Key("ours", "a"), slicertest.Key("stays", "a"), slicertest.Key("coming", "b"))
		told := make(map[string]*atomic.Int32)
		on := func(name, key string) (stop func() bool) {
			told[name] = new(atomic.Int32)
			return s.Handle(key).OnMove(func() { told[name].Add(1) })
		}
		check := func(step string, want map[string]int32) {
			t.Helper()
			for name, n := range told {
				if n.Load() != want[name] {
					t.Errorf("%s: %s was told %d times, want %d", step, name, n.Load(), want[name])
				}
			}
		}
		on("ours", "ours")
		on("away", "away")
		on("stays", "stays")
		on("coming", "coming")
		stop, late := on("stopped", "ours"), on("late", "ours")
		if !stop() || stop() {
			t.Error("stop does not know whether it came in time")
		}
		assign("other", "b")
		check("another key has moved", nil)
		assign("ours", "b")
		check("ours has moved", map[string]int32{"ours": 1, "late": 1})
		if late() {
			t.Error("stop says that it came in time")
		}
		assign("away", "c") // a key that was not owned goes to a third task
		check("away has moved", map[string]int32{"ours": 1, "late": 1, "away": 1})
		assign("coming", "a")
		check("coming has come", map[string]int32{"ours": 1, "late": 1, "away": 1})
		assign("coming", "b")
		check("coming has gone", map[string]int32{"ours": 1, "late": 1, "away": 1, "coming": 1})
		h := s.Handle("stays")
		assign("stays", "b")
		assign("stays", "a")
		lost := false
		h.OnMove(func() { lost = true })
		if !lost || told["stays"].Load() != 1 {
			t.Error("a key that was away for a moment has not moved")
		}
		on("last", "stays")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if told["last"].Load() != 1 {
			t.Error("not told that the slicelet has closed")
		}
		closed := false
		s.Handle("stays").OnMove(func() { closed = true })
		if !closed {
			t.Error("not told after the slicelet has closed")
		}
		none := false
		if slicelet.Handle.OnMove(slicelet.Handle{}, func() { none = true })(); !none {
			t.Error("the zero handle owns nothing")
		}
	})
}

// BenchmarkOnMove is what a long stream pays to hear of a move.
func BenchmarkOnMove(b *testing.B) {
	s, err := slicelet.New(slicelet.Config{Job: "job", Task: "a", Static: slicertest.Assignment("job", slicertest.Spread("a", "b"))})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		stop := s.HandleSliceKey(assignment.SliceKey(i)).OnMove(func() {})
		stop()
	}
}
