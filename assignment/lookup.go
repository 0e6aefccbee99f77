package assignment

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// line finds the slices of one bucket of keys, those that have the same top bits: what a lookup
// reads is half a cache line, whatever the number of slices.
//
// Its first 8 bytes are the head; then come the lanes, 2 bytes each, which are the bucket's other
// starts in order: the laneBits that follow the bucket's in a key. Lanes left over are emptyLane,
// which no start before them is above. Numbers are little-endian.
type line [lineSize]byte

const (
	lineSize  = 32
	numLanes  = (lineSize - headSize) / 2
	laneBits  = 14 // which leaves a bit for the comparison, and one to add up what it gives
	emptyLane = 1<<laneBits - 1

	inLanes uint64 = 1<<48 + 1<<32 + 1<<16 + 1 // times a value is that in all lanes of a word
	above          = inLanes << laneBits

	// A head is, from the low end, the number of the slice that holds the bucket's first key
	// (24 bits), the position of its first owner (24 bits), and flags.
	headSize = 8
	headBits = 24 // enough for MaxSlices and MaxOwnerships
	headMask = 1<<headBits - 1
	// shared buckets have a slice with several owners, or are a part's.
	shared uint64 = 1 << 62
	// overfull buckets have more starts than lanes: hot keys cut out into slices of their own.
	overfull uint64 = 1 << 63
)

// slicesPerLine is how many slices there are for each line, between half as many and so many.
// There is room for more than twice as many: few buckets are overfull even if starts are random.
const slicesPerLine = 5

// buildIndex makes the lines.
func (a *Assignment) buildIndex() {
	a.shift = a.shiftFor()
	a.lines = make([]line, 1<<(KeyBits-a.shift))
	a.buildLines(0, len(a.lines), 0)
}

// shiftFor is the shift for as many slices as there are.
func (a *Assignment) shiftFor() uint8 {
	return uint8(KeyBits - bits.Len(uint(len(a.c.Starts)/slicesPerLine)))
}

// buildLines makes those of the buckets from e to below end. The i-th slice holds the first key of
// the first of them, or ends there. It returns the number of the slice in which the last ends.
func (a *Assignment) buildLines(e, end, i int) int {
	starts := a.c.Starts
	for ; e < end; e++ {
		first := SliceKey(e) << a.shift
		if i+1 < len(starts) && starts[i+1] == first {
			i++
		}
		a.lines[e], i = a.newLine(i, first+1<<a.shift)
	}
	return i
}

// buildIndexFrom makes the lines of what edits make of base. Buckets without an edit have the
// lines of base, but for the numbers in their heads.
func (a *Assignment) buildIndexFrom(base *Assignment, edits []Edit) {
	if a.shift = a.shiftFor(); a.shift != base.shift {
		a.buildIndex()
		return
	}
	a.lines = slices.Clone(base.lines)
	made, last := 0, 0 // lines, and the slice in which the last of them ends
	i, j := 0, 0       // slices of base and of a
	for _, e := range edits {
		i, j = i+int(e.Keep), j+int(e.Keep)
		first := int(base.c.Starts[i] >> a.shift)
		if made <= first {
			a.moveLines(base, made, first, i, j)
			made, last = first, j
			for a.c.Starts[last] > SliceKey(first)<<a.shift {
				last--
			}
		}
		i, j = i+int(e.Old), j+int(e.New)
		end := int((startOrEnd(base, i)-1)>>a.shift) + 1
		made, last = end, a.buildLines(made, end, last)
	}
	a.moveLines(base, made, len(a.lines), i, j)
}

// moveLines makes base's lines of buckets from e to below end a's, whose j-th slice is base's i-th.
func (a *Assignment) moveLines(base *Assignment, e, end, i, j int) {
	lo, _ := a.c.owners(j, j)
	was, _ := base.c.owners(i, i)
	if e >= end || i == j && lo == was {
		return
	}
	more := uint64(int64(lo)-int64(was))<<headBits + uint64(j-i)
	for ; e < end; e++ {
		head := binary.LittleEndian.Uint64(a.lines[e][:])
		binary.LittleEndian.PutUint64(a.lines[e][:], head+more)
	}
}

// newLine makes the line of a bucket that begins in the i-th slice, and returns the number of the
// slice in which it ends.
func (a *Assignment) newLine(i int, end SliceKey) (l line, last int) {
	for n := range numLanes {
		binary.LittleEndian.PutUint16(l[headSize+2*n:], emptyLane)
	}
	var head uint64
	starts := a.c.Starts
	for last = i; last+1 < len(starts) && starts[last+1] < end; last++ {
		n := last - i
		if n == numLanes {
			head |= overfull
		}
		if head&overfull == 0 {
			suffix := starts[last+1] >> (a.shift - laneBits) & (1<<laneBits - 1)
			binary.LittleEndian.PutUint16(l[headSize+2*n:], uint16(suffix))
		}
	}
	lo, hi := a.Replicas(i).lo, a.Replicas(last).hi
	if int(hi-lo) > last-i+1 || a.h.Part != "" { // a part has slices without owners
		head |= shared
	}
	head |= uint64(lo)<<headBits | uint64(i)
	binary.LittleEndian.PutUint64(l[:], head)
	return l, last
}

// locate returns the number of the slice that holds the key and the positions of its owners, from
// lo to below hi. Of a patch it returns -1: that it has no lines is all that tells it apart here, which
// takes no time of what has.
//
// All of a line's lanes are compared at once: the bit above a lane stays if what is taken from it
// is no more than the key's. Without a loop there is no branch to mispredict.
func (a *Assignment) locate(k SliceKey) (i int, lo, hi uint32) {
	e := k >> (a.shift & 63)
	if e >= SliceKey(len(a.lines)) {
		if a.patch != nil {
			return -1, 0, 0
		}
		return a.locate(KeyspaceEnd - 1)
	}
	l := &a.lines[e]
	suffix := uint64(k) >> ((a.shift - laneBits) & 63) & (1<<laneBits - 1)
	x := suffix*inLanes | above
	n := (x - binary.LittleEndian.Uint64(l[8:])) & above
	n += (x - binary.LittleEndian.Uint64(l[16:])) & above
	n += (x - binary.LittleEndian.Uint64(l[24:])) & above
	n = n >> laneBits * inLanes >> 48
	head := binary.LittleEndian.Uint64(l[:])
	i = int(head&headMask + n)
	// If a lane is the key's, it is the last that is no more than it, and which comes first is in
	// bits that are not in the lane. Where none is no more, the two bytes before the lanes, which
	// are flags, cause a search too many at worst.
	same := uint64(binary.LittleEndian.Uint16(l[(headSize-2+2*n)&(lineSize-2):])) == suffix
	if same || head >= shared {
		if same || head >= overfull {
			i = a.search(k)
		}
		r := a.Replicas(i)
		return i, r.lo, r.hi
	}
	lo = uint32(head>>headBits + n)
	return i, lo, lo + 1
}

// first is the number of the slice that holds the bucket's first key.
func (l *line) first() int { return int(binary.LittleEndian.Uint64(l[:]) & headMask) }

// search is Find by binary search within the key's bucket.
func (a *Assignment) search(k SliceKey) int {
	e := int(k >> a.shift)
	i, last := a.lines[e].first(), len(a.c.Starts)-1
	if e+1 < len(a.lines) {
		last = a.lines[e+1].first()
	}
	for i < last {
		if mid := i + (last-i+1)/2; a.c.Starts[mid] <= k {
			i = mid
		} else {
			last = mid - 1
		}
	}
	return i
}

// Find returns the number of the slice that holds the key. Keys at or past
// KeyspaceEnd count as the last key.
func (a *Assignment) Find(k SliceKey) int {
	i, _, _ := a.inColumns().locate(k)
	return i
}

// Lookup returns the tasks that own the key. It takes some nanoseconds and one miss in the caches
// at any number of slices, no lock and no allocation.
func (a *Assignment) Lookup(k SliceKey) Replicas {
	i, lo, hi := a.locate(k)
	if i < 0 {
		a, lo, hi = a.patch.lookup(k)
	}
	return Replicas{a, lo, hi}
}
