package assignment

import "math/bits"

// line finds the slices of one bucket of keys, those that have the same top bits: what a lookup
// reads is half a cache line, whatever the number of slices.
type line struct {
	// head is, from the low end, the number of the slice that holds the bucket's first key
	// (24 bits), the position of its first owner (24 bits), and flags.
	head uint64
	// lanes are the bucket's other starts, in order, 16 bits each: the laneBits that follow the
	// bucket's in a key. The lanes left over are empty.
	lanes [lineWords]uint64
}

const (
	lineWords = 3
	laneBits  = 14 // which leaves a bit for emptyLane and one for the comparison
	emptyLane = 1<<15 - 1

	inLanes uint64 = 1<<48 + 1<<32 + 1<<16 + 1 // times a value is that in all lanes
	tops           = inLanes << 15

	headBits = 24 // enough for MaxSlices and MaxOwnerships
	headMask = 1<<headBits - 1
	// overfull buckets have more starts than lanes: hot keys cut out into slices of their own.
	overfull uint64 = 1 << 62
	// shared buckets have a slice with several owners.
	shared uint64 = 1 << 63
)

// slicesPerLine is how many slices there are for each line, between half as many and so many.
// There is room for more than twice as many: few buckets are overfull even if starts are random.
const slicesPerLine = 5

// buildIndex makes the lines.
func (a *Assignment) buildIndex() {
	starts := a.c.Starts
	b := bits.Len(uint(len(starts) / slicesPerLine))
	a.shift = uint8(KeyBits - b)
	a.lines = make([]line, 1<<b)
	i := 0 // the slice that holds the first key of the bucket
	for e := range a.lines {
		first := SliceKey(e) << a.shift
		if i+1 < len(starts) && starts[i+1] == first {
			i++
		}
		a.lines[e], i = a.newLine(i, first+1<<a.shift)
	}
}

// newLine makes the line of a bucket that begins in the i-th slice, and returns the number of the
// slice in which it ends.
func (a *Assignment) newLine(i int, end SliceKey) (l line, last int) {
	for w := range l.lanes {
		l.lanes[w] = emptyLane * inLanes
	}
	starts := a.c.Starts
	for last = i; last+1 < len(starts) && starts[last+1] < end; last++ {
		n := last - i
		if n == 4*lineWords {
			l.head |= overfull
		}
		if l.head&overfull == 0 {
			suffix := uint64(starts[last+1]) >> (a.shift - laneBits) & (1<<laneBits - 1)
			l.lanes[n/4] ^= (emptyLane ^ suffix) << (n % 4 * 16)
		}
	}
	lo, hi := a.Replicas(i).lo, a.Replicas(last).hi
	if int(hi-lo) > last-i+1 {
		l.head |= shared
	}
	l.head |= uint64(lo)<<headBits | uint64(i)
	return l, last
}

// locate returns the number of the slice that holds the key and, if it has one owner, one is
// true, that owner's position among the owners.
//
// All of a line's lanes are compared at once: a lane's top bit stays if what is taken from it is
// no more than the key's. Without a loop there is no branch to mispredict.
func (a *Assignment) locate(k SliceKey) (i int, owner uint32, one bool) {
	k = min(k, KeyspaceEnd-1)
	l := &a.lines[k>>(a.shift&63)]
	x := uint64(k)>>((a.shift-laneBits)&63)&(1<<laneBits-1)*inLanes | tops
	y := x - inLanes
	d0, d1, d2 := x-l.lanes[0], x-l.lanes[1], x-l.lanes[2]
	// Where the top bit is lost with one less, lane and key are the same, and which comes first
	// is in bits that are not in the lane.
	same := (d0 ^ (y - l.lanes[0])) | (d1 ^ (y - l.lanes[1])) | (d2 ^ (y - l.lanes[2]))
	head := l.head
	if same&tops|head&overfull != 0 {
		return a.search(k), 0, false
	}
	n := (d0&tops>>15 + d1&tops>>15 + d2&tops>>15) * inLanes >> 48
	return int(head&headMask + n), uint32(head>>headBits&headMask + n), head&shared == 0
}

// search is Find by binary search within the key's bucket.
func (a *Assignment) search(k SliceKey) int {
	e := int(k >> a.shift)
	lo, hi := int(a.lines[e].head&headMask), len(a.c.Starts)-1
	if e+1 < len(a.lines) {
		hi = int(a.lines[e+1].head & headMask)
	}
	for lo < hi {
		if mid := lo + (hi-lo+1)/2; a.c.Starts[mid] <= k {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// Find returns the number of the slice that holds the key. Keys at or past
// KeyspaceEnd count as the last key.
func (a *Assignment) Find(k SliceKey) int {
	i, _, _ := a.locate(k)
	return i
}

// Lookup returns the tasks that own the key. It takes some nanoseconds and one miss in the caches
// at any number of slices, no lock and no allocation.
func (a *Assignment) Lookup(k SliceKey) Replicas {
	i, owner, one := a.locate(k)
	if one {
		return Replicas{a, owner, owner + 1}
	}
	return a.Replicas(i)
}
