package suite

import (
	"cmp"
	"maps"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// merge is what is in one of the two, in order and apart.
func merge(a, b []assignment.Slice) (out []assignment.Slice) {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y assignment.Slice) int { return cmp.Compare(x.Start, y.Start) })
	for _, s := range all {
		if n := len(out); n > 0 && s.Start <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, s.End)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// subtract is what is in a and not in b.
func subtract(a, b []assignment.Slice) []assignment.Slice {
	out := merge(a, nil)
	for _, cut := range b {
		var rest []assignment.Slice
		for _, s := range out {
			for _, piece := range []assignment.Slice{{Start: s.Start, End: min(s.End, cut.Start)}, {Start: max(s.Start, cut.End), End: s.End}} {
				if piece.Start < piece.End {
					rest = append(rest, piece)
				}
			}
		}
		out = rest
	}
	return out
}

// same reports whether two lists of slices cover the same keys.
func same(a, b []assignment.Slice) bool { return slices.Equal(merge(a, nil), merge(b, nil)) }

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
