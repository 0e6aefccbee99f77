package slicelet

import (
	"math/rand/v2"
	"slices"
	"testing"

	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
)

// drawSlices draws slices in order and apart, of all widths from one key up, and
// often next to each other.
func drawSlices(t *rapid.T, most int) []assignment.Slice {
	width := rapid.Custom(func(t *rapid.T) uint64 {
		bits := rapid.IntRange(0, 60).Draw(t, "bits")
		return rapid.Uint64Range(1, 1<<bits).Draw(t, "width")
	})
	var out []assignment.Slice
	at := uint64(0)
	for range rapid.IntRange(0, most).Draw(t, "slices") {
		if rapid.Bool().Draw(t, "gap") {
			at += width.Draw(t, "gap width")
		}
		end := at + width.Draw(t, "slice width")
		if at >= uint64(assignment.KeyspaceEnd) || end > uint64(assignment.KeyspaceEnd) {
			break
		}
		out = append(out, assignment.Slice{Start: assignment.SliceKey(at), End: assignment.SliceKey(end)})
		at = end
	}
	if rapid.Bool().Draw(t, "to the end") && at < uint64(assignment.KeyspaceEnd) {
		out = append(out, assignment.Slice{Start: assignment.SliceKey(at), End: assignment.KeyspaceEnd})
	}
	return out
}

// keysAround are the keys where something could go wrong: at the ends of slices
// and of their parts, and some others.
func keysAround(l *layout, seed uint64) []assignment.SliceKey {
	rng := rand.New(rand.NewPCG(seed, 0))
	keys := []assignment.SliceKey{0, 1, assignment.KeyspaceEnd - 1}
	for i := range l.entries {
		for p := range l.parts {
			b := l.bounds(i, p)
			keys = append(keys, b.Start-1, b.Start, b.Start+1, b.End-1, b.End)
		}
	}
	for range 20 {
		keys = append(keys, assignment.SliceKey(rng.Uint64()>>1))
	}
	return slices.DeleteFunc(keys, func(k assignment.SliceKey) bool { return k >= assignment.KeyspaceEnd })
}

func TestLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ss := drawSlices(t, 60)
		l := newLayout(ss)
		if !l.is(ss) || len(ss) > 0 && l.is(ss[1:]) {
			t.Fatal("it does not know itself")
		}
		for _, k := range keysAround(l, rapid.Uint64().Draw(t, "seed")) {
			want := slices.IndexFunc(ss, func(s assignment.Slice) bool { return s.Contains(k) })
			i := l.find(k)
			if i != want {
				t.Fatalf("key %s: slice %d, want %d of %v", k, i, want, ss)
			}
			if i < 0 {
				continue
			}
			c := l.cell(i, k)
			if c/l.parts != i {
				t.Fatalf("key %s of slice %d is counted in slice %d", k, i, c/l.parts)
			}
			// Exact, but for a sliver at the edges of parts of wide slices.
			b := l.bounds(i, c%l.parts)
			if sliver := assignment.SliceKey(ss[i].Width() >> 24); k+sliver < b.Start || k >= b.End+sliver || sliver == 0 && !b.Contains(k) {
				t.Fatalf("key %s of %s is counted in part %d, %s", k, ss[i], c%l.parts, b)
			}
		}
	})
}

// Hot keys cut out of one place crowd one bucket of the index.
func TestLayoutCrowded(t *testing.T) {
	ss := []assignment.Slice{{Start: 0, End: 1 << 40}}
	for i := range assignment.SliceKey(1000) {
		ss = append(ss, assignment.Slice{Start: 1<<41 + 3*i, End: 1<<41 + 3*i + 1 + i%2})
	}
	ss = append(ss, assignment.Slice{Start: 1 << 62, End: assignment.KeyspaceEnd})
	l := newLayout(ss)
	for i := range assignment.SliceKey(3100) {
		k := 1<<41 + i - 50
		if got, want := l.find(k), slices.IndexFunc(ss, func(s assignment.Slice) bool { return s.Contains(k) }); got != want {
			t.Fatalf("key %s: slice %d, want %d", k, got, want)
		}
	}
}

// A task that owns very much is metered more coarsely.
func TestLayoutParts(t *testing.T) {
	for _, c := range []struct{ slices, parts int }{{1, 8}, {4096, 8}, {4097, 4}, {16384, 2}, {40000, 1}} {
		var ss []assignment.Slice
		for _, k := range assignment.Equal(c.slices) {
			ss = append(ss, assignment.Slice{Start: k, End: k + 1})
		}
		if l := newLayout(ss); l.parts != c.parts || l.cells() != c.parts*c.slices {
			t.Errorf("%d slices in %d parts, want %d", c.slices, l.parts, c.parts)
		}
	}
}
