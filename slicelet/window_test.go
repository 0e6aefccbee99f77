package slicelet

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
)

func never(assignment.SliceKey) bool { return false }

// TestProject: what is known exactly stays exact, nothing is invented, and heavy
// keys go where they lie.
func TestProject(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := newLayout(drawSlices(t, 12)), newLayout(drawSlices(t, 12))
		w := newWindow(from)
		w.counted[requests] = make([]float64, from.cells())
		total := 0.0
		for _, c := range from.list() {
			n := float64(rapid.IntRange(0, 1000).Draw(t, "count"))
			w.counted[requests][c.cell] = n
			total += n
		}
		for i := range w.seconds {
			w.seconds[i] = 1
		}
		var hot [metrics][]heavy
		for _, c := range from.list() {
			if rapid.IntRange(0, 3).Draw(t, "hot") == 0 {
				k := c.Start + assignment.SliceKey(rapid.Uint64Range(0, c.Width()-1).Draw(t, "hot key"))
				hot[requests] = append(hot[requests], heavy{key: k, weight: w.counted[requests][c.cell] * .7})
			}
		}
		got := w.project(to, hot, never)
		sum := 0.0
		for _, d := range to.list() {
			n, secs := got.counted[requests][d.cell], got.seconds[d.cell]
			sum += n
			if n < 0 || secs < 0 || secs > 1+1e-9 {
				t.Fatalf("%s: %v in %v s", d.Slice, n, secs)
			}
			// The truth, as far as there is one: cells of from that lie within.
			least, covered := 0.0, 0.0
			for _, c := range from.list() {
				if both, ok := c.Intersect(d.Slice); ok {
					covered += float64(both.Width())
					if both == c.Slice {
						least += w.counted[requests][c.cell]
					}
				}
			}
			if n < least-1e-6 {
				t.Fatalf("%s: %v, but %v were counted in cells within it", d.Slice, n, least)
			}
			if want := covered / float64(d.Width()); math.Abs(secs-want) > 1e-9 {
				t.Fatalf("%s: watched for %v s, want %v", d.Slice, secs, want)
			}
			for _, h := range hot[requests] {
				if d.Contains(h.key) && n < h.sure()-1e-6 {
					t.Fatalf("%s: %v, but key %s alone has %v", d.Slice, n, h.key, h.sure())
				}
			}
		}
		if sum > total+1e-6*total {
			t.Fatalf("%v out of %v", sum, total)
		}
	})
}

// A slice is split at a hot key, which gets a slice of its own; then all is
// merged again.
func TestProjectSplitAndMerge(t *testing.T) {
	const k = 1 << 50
	whole := newLayout([]assignment.Slice{{Start: 0, End: 1 << 60}})
	cut := newLayout([]assignment.Slice{{Start: 0, End: k}, {Start: k, End: k + 1}, {Start: k + 1, End: 1 << 60}})
	w := newWindow(whole)
	counted := make([]float64, whole.cells())
	counted[0], counted[3] = 1000, 80 // the key lies in part 0
	w.watch(2, [metrics][]float64{requests: counted})
	hot := [metrics][]heavy{requests: {{key: k, weight: 910, over: 10}}}

	got := w.project(cut, hot, never)
	of := func(w window, i int) (n float64) {
		return amount(w.counted[requests][i*w.lay.parts : (i+1)*w.lay.parts])
	}
	if n := of(got, 1); math.Abs(n-900) > 1e-6 {
		t.Errorf("the hot key's slice has %v, want 900", n)
	}
	if n := of(got, 0) + of(got, 2); math.Abs(n-180) > 1e-6 {
		t.Errorf("the rest has %v, want 180", n)
	}
	back := got.project(whole, hot, never)
	if n := of(back, 0); math.Abs(n-1080) > 1e-6 {
		t.Errorf("merged again %v, want 1080", n)
	}
	for i, s := range back.seconds {
		if math.Abs(s-2) > 1e-9 {
			t.Errorf("part %d was watched for %v s, want 2", i, s)
		}
	}
}
