package fanout

import (
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
)

func TestShelfKeepsAFew(t *testing.T) {
	s := deltaCache{encode: unencoded}
	if s.newest() != nil || s.find(0) != nil || s.whole(1, false) != nil {
		t.Error("an empty shelf holds something")
	}
	a := firstOf(t, testJob, testStore, baseGen, 50)
	var all []*assignment.Assignment
	for range 10 {
		s.put(a, time.Time{})
		all = append(all, a)
		a = after(t, a, 1)
	}
	if len(s.items) != MaxHeld || s.newest() != all[9] || s.find(all[4].Generation()) != all[4] || s.find(all[3].Generation()) != nil {
		t.Errorf("%d are held, the newest is %d", len(s.items), s.newest().Generation()-baseGen)
	}
	d := s.delta(all[8].Generation(), all[8].Checksum())
	if d == nil || d != s.delta(all[8].Generation(), all[8].Checksum()) {
		t.Error("a delta is made twice")
	}
	if s.delta(all[8].Generation(), 0) != nil || s.delta(all[0].Generation(), all[0].Checksum()) != nil {
		t.Error("a delta on what is not held")
	}
	for _, compressed := range []bool{false, true} {
		if w := s.whole(all[9].Generation(), compressed); w == nil || w != s.whole(all[9].Generation(), compressed) || w == s.whole(all[9].Generation(), !compressed) {
			t.Error("the whole is made twice, or is the same compressed and not")
		}
	}
	s.put(firstOf(t, testJob, testStore+1, baseGen, 50), time.Time{})
	if len(s.items) != 1 {
		t.Errorf("%d are held after the store has changed", len(s.items))
	}
}

func TestShelfBoundsGiants(t *testing.T) {
	s := deltaCache{encode: unencoded}
	a := firstOf(t, testJob, testStore, baseGen, maxHeldSlices/2+1)
	for range 4 {
		s.put(a, time.Time{})
		a = after(t, a, 1)
	}
	if len(s.items) != 2 {
		t.Errorf("%d giants are held", len(s.items))
	}
}

func TestShelfInsert(t *testing.T) {
	var all []*assignment.Assignment
	a := firstOf(t, testJob, testStore, baseGen, 50)
	for range 3 * MaxHeld {
		all = append(all, a)
		a = after(t, a, 1)
	}
	s := deltaCache{encode: unencoded}
	s.insert(all[0])
	if len(s.items) != 0 {
		t.Error("a base without anything to stand on it is held")
	}
	newest := all[len(all)-1]
	s.put(newest, time.Time{})
	for _, i := range []int{5, 3, 9, 5, 12, 1, 13, 2, 0} {
		s.insert(all[i])
		if len(s.items) > MaxHeld || s.newest() != newest || s.find(all[i].Generation()) != all[i] {
			t.Fatalf("after %d: %d are held", i, len(s.items))
		}
		if !slices.IsSortedFunc(s.items, func(x, y *item) int { return int(x.a.Generation() - y.a.Generation()) }) {
			t.Fatalf("after %d: out of order", i)
		}
	}
}

// unencoded stands for messages that are told apart and never sent.
func unencoded(_, _ *assignment.Assignment, _ bool) *prepared.Messages { return prepared.New(nil) }
