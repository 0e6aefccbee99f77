package balanced_test

import (
	"testing"

	"github.com/slicer-project/slicer/test/kit/balanced"
)

// A job has about as many slices as asked for, is the same each time, and has what makes
// assignments of the balancer special.
func TestNew(t *testing.T) {
	for _, n := range []int{10, 1000, 10_000} {
		j := balanced.New(t, n)
		a := j.Assignment()
		t.Logf("%d: %v, %d owners", n, a, a.NumOwners())
		if got := a.NumSlices(); got < n*8/10 || got > n*12/10 {
			t.Errorf("%d slices, want about %d", got, n)
		}
		if b := balanced.New(t, n).Assignment(); b.Checksum() != a.Checksum() {
			t.Errorf("%d slices: another assignment the second time", n)
		}
		if n < 1000 {
			continue
		}
		widths := map[uint64]int{}
		for i := range a.NumSlices() {
			widths[a.Slice(i).Width()]++
		}
		if len(widths) < 10 || a.NumOwners() == a.NumSlices() || widths[1] == 0 {
			t.Errorf("%d slices: %d different widths, %d owners, %d slices of one key: want several, more than slices, and one", n, len(widths), a.NumOwners(), widths[1])
		}
		if next := j.Round(t); next.Generation() <= a.Generation() {
			t.Errorf("%d slices: nothing changes any more", n)
		}
	}
}
