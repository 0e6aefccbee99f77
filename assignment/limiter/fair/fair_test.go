package fair_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment/limiter/fair"
)

var epoch = time.UnixMilli(1_700_000_000_000)

// However they come, are done and go: no more hold a place than is allowed, a class does
// not wait for a lower one, and each has its place in the end.
func TestLimiter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const least, most, hold = 2, 100, 2 * time.Second
		takeOver, kept := rapid.Bool().Draw(t, "takeOver"), rapid.SampledFrom([]int{0, 2, 4}).Draw(t, "kept")
		l := fair.New(fair.Config{Least: least, Cost: most, Hold: hold, Classes: 2, Kept: kept, TakeOver: takeOver})
		now := epoch
		type one struct {
			key         string
			class, cost int
			had         bool
			until       time.Time
		}
		all := map[uint64]*one{}
		collect := func() {
			for _, id := range l.Granted() {
				if w := all[id]; w != nil {
					if w.had {
						t.Fatalf("%d is granted twice", id)
					}
					w.had, w.until = true, now.Add(hold)
				} else {
					t.Fatalf("%d is granted, which has gone", id)
				}
			}
		}
		next := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				next++
				w := &one{key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"), class: rapid.IntRange(0, 1).Draw(t, "class"), cost: rapid.IntRange(1, 80).Draw(t, "cost")}
				all[next] = w
				if w.had = l.Acquire(now, next, w.key, w.class, w.cost); w.had {
					w.until = now.Add(hold)
				}
				if w.had == l.Waits(next) {
					t.Fatalf("it has its place: %v, and it waits: %v", w.had, !w.had)
				}
			},
			"done": func(t *rapid.T) {
				id := rapid.Uint64Range(0, next).Draw(t, "id") // there is no 0
				collect()
				l.Release(now, id)
				delete(all, id)
				collect()
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
				l.Expire(now)
			},
			"": func(t *rapid.T) {
				l.Expire(now)
				collect()
				waits, had := 0, 0
				for id, w := range all {
					if !w.had {
						waits++
						if !l.Waits(id) {
							t.Fatalf("%d has no place and does not wait", id)
						}
					} else if w.until.After(now) {
						had++
					}
				}
				if waits != l.Waiting() || l.Holding() > had || !takeOver && l.Holding() != had {
					t.Fatalf("%d hold a place and %d wait, want %d and %d", l.Holding(), l.Waiting(), had, waits)
				}
				if waits > 0 && l.Holding() < least && (kept != 2 || l.Holding() == 0) {
					t.Fatalf("%d wait, and only %d hold a place", waits, l.Holding())
				}
				if at := l.Next(); waits > 0 && (at.IsZero() || at.After(now.Add(hold))) {
					t.Fatalf("%d wait, and nothing is looked at before %s", waits, at)
				}
			},
		})
		for range len(all) + 1 {
			now = now.Add(hold)
			l.Expire(now)
			collect()
		}
		for id, w := range all {
			if !w.had {
				t.Fatalf("%d has waited in vain", id)
			}
		}
	})
}

// The dearest that are allowed at once, however many places there are.
func TestCost(t *testing.T) {
	l := fair.New(fair.Config{Least: 2, Cost: 100, Hold: time.Second, Classes: 1})
	var in []uint64
	for id, cost := range []int{40, 40, 15, 10, 5} {
		if l.Acquire(epoch, uint64(id), "a", 0, cost) {
			in = append(in, uint64(id))
		}
	}
	if !slices.Equal(in, []uint64{0, 1, 2}) { // 5 would fit, but 10 was there before
		t.Errorf("%v have a place", in)
	}
	l.Release(epoch, 2)
	if got := l.Granted(); !slices.Equal(got, []uint64{3, 4}) {
		t.Errorf("then %v have one", got)
	}
}

// Class 0 goes first, and within a class keys in turn.
func TestOrder(t *testing.T) {
	l := fair.New(fair.Config{Least: 1, Hold: time.Second, Classes: 2})
	for id, w := range []struct {
		key   string
		class int
	}{{"a", 1}, {"a", 1}, {"a", 1}, {"b", 1}, {"a", 0}, {"c", 1}, {"b", 0}} {
		if l.Acquire(epoch, uint64(id), w.key, w.class, 1) != (id == 0) {
			t.Fatalf("%d has its place, or the first has not", id)
		}
	}
	var order []uint64
	for id := uint64(0); len(order) < 6; id = order[len(order)-1] {
		l.Release(epoch, id)
		order = append(order, l.Granted()...)
	}
	if fmt.Sprint(order) != "[4 6 1 3 5 2]" {
		t.Errorf("the order is %v", order)
	}
}

// A key with many of class 0 that never release leaves a part of the places to others, and
// those go before its next whatever their class, once each.
func TestKept(t *testing.T) {
	l := fair.New(fair.Config{Least: 8, Hold: time.Second, Classes: 2, Kept: 4})
	id := uint64(0)
	come := func(key string, class int) bool {
		id++
		return l.Acquire(epoch, id, key, class, 1)
	}
	in := 0
	for range 100 {
		if come("many", 0) {
			in++
		}
	}
	if in != 6 {
		t.Errorf("one key has %d of 8 places at once, want 6", in)
	}
	if !come("one", 1) || !come("other", 1) {
		t.Error("a key without a place has none of those that are kept")
	}
	if come("one", 1) || come("third", 1) {
		t.Error("there are more places than 8")
	}
	third := id
	l.Release(epoch, 1)
	if got := l.Granted(); !slices.Equal(got, []uint64{third}) {
		t.Errorf("%v are next, want %d, of a key without a place", got, third)
	}
	l.Release(epoch, 2)
	l.Release(epoch, 3)
	l.Release(epoch, 4)
	if got := l.Granted(); !slices.Equal(got, []uint64{7}) {
		t.Errorf("then %v, want the first of class 0 as there are 6 again", got)
	}
}

// A key with a thousand that never release is one among others: who comes from elsewhere
// takes a place over at once, and where that is not allowed is the next to have one.
func TestManyOfOneKey(t *testing.T) {
	for _, takeOver := range []bool{false, true} {
		l := fair.New(fair.Config{Least: 64, Hold: time.Second, Classes: 1, TakeOver: takeOver})
		for id := range uint64(1000) {
			l.Acquire(epoch.Add(time.Duration(id)*time.Microsecond), id, "many", 0, 1)
		}
		now := epoch.Add(time.Millisecond)
		if has := l.Acquire(now, 1000, "one", 0, 1); has != takeOver || l.Holding() != 64 {
			t.Errorf("one of another key has a place at once: %v, of %d", has, l.Holding())
		}
		if has := l.Acquire(now, 1001, "one", 0, 1); has {
			t.Error("and so has its second")
		}
		l.Expire(epoch.Add(time.Second + 2*time.Microsecond)) // the first three release their places, if they have not lost them
		if got := l.Granted(); len(got) < 2 || len(got) > 3 || got[0] != 64 {
			t.Errorf("%v are next", got)
		}
		if !takeOver && l.Waits(1000) {
			t.Error("that of another key waits for more than its turn")
		}
		if id, ok := l.Longest(); !ok || id != 999 {
			t.Errorf("the last of the key that has the most is %d", id)
		}
	}
}

// With fewer places those that are held stay, and no more are given out.
func TestLimit(t *testing.T) {
	l := fair.New(fair.Config{Least: 3, Hold: time.Second, Classes: 1, TakeOver: true})
	for id := range uint64(6) {
		l.Acquire(epoch, id, "a", 0, 1)
	}
	l.Limit(epoch, 1)
	l.Release(epoch, 0)
	l.Release(epoch, 1)
	if got := l.Granted(); got != nil || l.Holding() != 1 {
		t.Errorf("%v have a place besides %d", got, l.Holding())
	}
	l.Limit(epoch, 3)
	if got := l.Granted(); !slices.Equal(got, []uint64{3, 4}) {
		t.Errorf("%v have a place when there are more again", got)
	}
}

func TestRate(t *testing.T) {
	r := fair.NewRate(100*time.Millisecond, 5)
	now := epoch
	allowed := func(key string, n int) (yes int) {
		for range n {
			if r.Allow(now, key) {
				yes++
			}
		}
		return yes
	}
	if a, b := allowed("a", 50), allowed("b", 3); a != 5 || b != 3 {
		t.Errorf("%d of a and %d of b are allowed, not 5 and 3", a, b)
	}
	now = now.Add(time.Second)
	for range 10 {
		now = now.Add(100 * time.Millisecond)
		if allowed("b", 1) != 1 {
			t.Error("one each interval is not allowed")
		}
	}
	if a := allowed("a", 50); a != 5 {
		t.Errorf("after a rest %d are allowed, not 5", a)
	}
	r.GiveBack("a")
	if a := allowed("a", 50); a != 1 {
		t.Errorf("after one was given back %d are allowed, not 1", a)
	}
	for _, after := range []time.Duration{0, 100, 150, 300, 500, 2000} {
		if a, b := r.Used(now.Add(after*time.Millisecond), "a"), max(0, 5-int(after)/100); a != b {
			t.Errorf("%d ms later %d are used up, not %d", after, a, b)
		}
	}
	if n := r.Used(now, "c"); n != 0 {
		t.Errorf("%d are used up of a key that was not there", n)
	}
}
