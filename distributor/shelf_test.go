package distributor

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

func TestShelfKeepsAFew(t *testing.T) {
	var s shelf
	if s.newest() != nil || s.find(0) != nil || s.whole(1) != nil {
		t.Error("an empty shelf holds something")
	}
	a := firstOf(t, testJob, testStore, baseGen, 50)
	var all []*assignment.Assignment
	for range 10 {
		s.put(a, time.Time{})
		all = append(all, a)
		a = after(t, a, 1)
	}
	if len(s.items) != maxHeld || s.newest() != all[9] || s.find(all[4].Generation()) != all[4] || s.find(all[3].Generation()) != nil {
		t.Errorf("%d are held, the newest is %d", len(s.items), s.newest().Generation()-baseGen)
	}
	d := s.delta(all[8].Generation(), all[8].Checksum())
	if d == nil || d != s.delta(all[8].Generation(), all[8].Checksum()) {
		t.Error("a delta is made twice")
	}
	if s.delta(all[8].Generation(), 0) != nil || s.delta(all[0].Generation(), all[0].Checksum()) != nil {
		t.Error("a delta on what is not held")
	}
	if w := s.whole(all[9].Generation()); w == nil || w != s.whole(all[9].Generation()) {
		t.Error("the whole is made twice")
	}
	s.put(firstOf(t, testJob, testStore+1, baseGen, 50), time.Time{})
	if len(s.items) != 1 {
		t.Errorf("%d are held after the store has changed", len(s.items))
	}
}

func TestShelfBoundsGiants(t *testing.T) {
	var s shelf
	a := firstOf(t, testJob, testStore, baseGen, maxHeldSlices/2+1)
	for range 4 {
		s.put(a, time.Time{})
		a = after(t, a, 1)
	}
	if len(s.items) != 2 {
		t.Errorf("%d giants are held", len(s.items))
	}
}
