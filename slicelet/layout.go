package slicelet

import (
	"math/bits"
	"sort"

	"github.com/slicer-project/slicer/assignment"
)

// layout is the slices that a task owns, in key order and apart: what a key is
// found in, and what load is metered by. It never changes.
type layout struct {
	entries []entry
	// index finds a slice by the top bits of a key, counted from base: the first
	// slice that ends after the first key of the bucket. Slices are near-uniform
	// within their span, so that on average less than two have to be looked at.
	index []uint32
	base  assignment.SliceKey
	span  assignment.SliceKey
	shift uint8
	// parts is how many equal parts each slice is metered in.
	parts int
}

type entry struct {
	start, end assignment.SliceKey
	// To find the part of a key without dividing: the offset >> shift, times inv.
	inv   uint64
	shift uint8
}

// Each slice is metered in maxParts parts, or fewer when a task owns so many
// slices that counters and reports would grow beyond maxCells.
const (
	maxParts = 8
	maxCells = 1 << 15
)

func newLayout(slices []assignment.Slice) *layout {
	l := &layout{entries: make([]entry, len(slices)), parts: maxParts}
	for l.parts > 1 && l.parts*len(slices) > maxCells {
		l.parts /= 2
	}
	for i, s := range slices {
		l.entries[i] = newEntry(s, l.parts)
	}
	if len(slices) == 0 {
		return l
	}
	l.base = slices[0].Start
	l.span = slices[len(slices)-1].End - l.base
	// About two buckets a slice.
	spanBits := bits.Len64(uint64(l.span - 1))
	l.shift = uint8(max(spanBits-min(bits.Len(uint(len(slices)))+1, 22), 0))
	l.index = make([]uint32, int((l.span-1)>>l.shift)+2)
	i := 0
	for b := range l.index {
		first := assignment.SliceKey(b) << l.shift
		for i+1 < len(slices) && slices[i].End-l.base <= first {
			i++
		}
		l.index[b] = uint32(i)
	}
	return l
}

func newEntry(s assignment.Slice, parts int) entry {
	e := entry{start: s.Start, end: s.End}
	// 28 bits of the offset are exact enough, and few enough that no part is wrong
	// because inv is rounded up: 31 bits times what is added to inv * width, at most 28
	// bits, is less than 2^partBits.
	e.shift = uint8(max(bits.Len64(s.Width()-1)-28, 0))
	width := (s.Width()-1)>>e.shift + 1
	e.inv = (1<<partBits + width - 1) / width
	return e
}

// partBits is where the part's number begins in the product of (parts * offset +
// parts - 1) and inv: at most 31 bits times 2^partBits / width.
const partBits = 60

// slice is the i-th.
func (l *layout) slice(i int) assignment.Slice {
	return assignment.Slice{Start: l.entries[i].start, End: l.entries[i].end}
}

// is reports whether the layout is of these slices.
func (l *layout) is(slices []assignment.Slice) bool {
	if len(l.entries) != len(slices) {
		return false
	}
	for i, s := range slices {
		if l.slice(i) != s {
			return false
		}
	}
	return true
}

// find returns the number of the slice that holds the key, -1 if none does.
func (l *layout) find(k assignment.SliceKey) int {
	off := k - l.base // wraps for keys before the first slice
	if off >= l.span {
		return -1
	}
	b := off >> l.shift
	lo, hi := int(l.index[b]), int(l.index[b+1])
	if hi-lo > 8 { // hot keys cut out into slices of their own can crowd a bucket
		lo += sort.Search(hi-lo, func(i int) bool { return l.entries[lo+i].end > k })
	}
	for ; lo <= hi; lo++ {
		if e := &l.entries[lo]; k < e.end {
			if k >= e.start {
				return lo
			}
			return -1
		}
	}
	return -1
}

// cell is the number of the part of all parts of all slices in which a key of
// the i-th slice is counted; -1 if i is.
func (l *layout) cell(i int, k assignment.SliceKey) int {
	if i < 0 {
		return -1
	}
	e := &l.entries[i]
	off := uint64(k-e.start) >> (e.shift & 63)
	part := (off*uint64(l.parts) + uint64(l.parts) - 1) * e.inv >> partBits
	return i*l.parts + int(part)
}

// cells is how many there are.
func (l *layout) cells() int { return len(l.entries) * l.parts }

// bounds are the keys of the p-th part of the i-th slice, empty if the slice is
// narrow: part p begins floor(p * width / parts) after the start.
func (l *layout) bounds(i, p int) assignment.Slice {
	s := l.slice(i)
	w, n := s.Width(), uint64(l.parts)
	cut := func(p uint64) assignment.SliceKey {
		return s.Start + assignment.SliceKey(w/n*p+w%n*p/n)
	}
	return assignment.Slice{Start: cut(uint64(p)), End: cut(uint64(p) + 1)}
}
