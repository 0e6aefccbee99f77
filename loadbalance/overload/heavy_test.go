package overload

import (
	"math"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

// TestHeavyKeys holds the parts against those that filling up all keys alike gives.
func TestHeavyKeys(t *testing.T) {
	for _, c := range []struct {
		name          string
		asked, served float64
		keys          []KeyRate
		keep          map[assignment.SliceKey]float64
	}{
		{"room for all", 50, 50, []KeyRate{{1, 40}}, nil},
		{"nothing is served", 50, 0, []KeyRate{{1, 40}}, nil},
		{"one key", 525, 50, []KeyRate{{1, 500}}, map[assignment.SliceKey]float64{1: .04}},
		{"two, of which one asks for little more", 125, 100, []KeyRate{{2, 20}, {1, 60}}, map[assignment.SliceKey]float64{1: 25. / 60}},
		{"two", 130, 100, []KeyRate{{2, 45}, {1, 60}}, map[assignment.SliceKey]float64{1: 32.5 / 60, 2: 32.5 / 45}},
		{"it is the others", 500, 50, []KeyRate{{1, 20}}, nil},
		{"no keys", 500, 50, nil, nil},
		{"no numbers", math.NaN(), 50, []KeyRate{{1, math.NaN()}}, nil},
		{"a key of no rate", 500, 50, []KeyRate{{1, math.NaN()}, {2, 480}}, map[assignment.SliceKey]float64{2: 25. / 480}},
	} {
		h := NewHeavyKeys(c.asked, c.served, c.keys)
		if (h == nil) != (c.keep == nil) || h != nil && len(h.keys) != len(c.keep) {
			t.Errorf("%s: %+v, want %v", c.name, h, c.keep)
			continue
		}
		for k := range assignment.SliceKey(4) {
			want, heavy := c.keep[k]
			if !heavy {
				want = 1
			}
			for base := Priority(0); base < Priorities; base += Cohorts {
				same := 0
				for at := range Priority(Cohorts) {
					switch r := h.Rank(base+at, k); {
					case r == base+max(at, 1):
						same++
					case r != base && h != nil:
						t.Fatalf("%s: key %d, priority %d ranks as %d", c.name, k, base+at, r)
					}
				}
				if got := float64(same) / Cohorts; math.Abs(got-want) > .02 {
					t.Errorf("%s: of key %d %.2f rank as they are, want %.2f", c.name, k, got, want)
				}
			}
		}
	}
	many := make([]KeyRate, 40)
	for i := range many {
		many[i] = KeyRate{assignment.SliceKey(i), 10}
	}
	if h := NewHeavyKeys(400, 390, many); h != nil && len(h.keys) > maxHeavy {
		t.Errorf("%d heavy keys", len(h.keys))
	}
}
