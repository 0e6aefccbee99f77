package assignment

import "math/bits"

// The index has at most 2^maxIndexBits entries, 2 MiB: past that it pushes more
// out of the caches than it saves in steps.
const maxIndexBits = 19

// buildIndex makes the table that finds a slice by the top bits of a key. Slice
// starts are near-uniform, so with two to four entries a slice a lookup reads
// one entry and then, on average, less than one start; at a million slices, with
// half an entry a slice, it reads one or two.
func (a *Assignment) buildIndex() {
	starts := a.c.Starts
	b := min(bits.Len(uint(len(starts)))+1, maxIndexBits)
	a.shift = uint8(KeyBits - b)
	a.index = make([]uint32, 1<<b+1)
	i := 0
	for e := range a.index {
		// The slice that holds the first key of the bucket.
		first := SliceKey(e) << a.shift
		for i+1 < len(starts) && starts[i+1] <= first {
			i++
		}
		a.index[e] = uint32(i)
	}
}

// Find returns the number of the slice that holds the key. Keys at or past
// KeyspaceEnd count as the last key.
func (a *Assignment) Find(k SliceKey) int {
	k = min(k, KeyspaceEnd-1)
	e := k >> a.shift
	lo, hi := a.index[e], a.index[e+1]
	starts := a.c.Starts
	// Hot keys cut out into slices of their own can crowd one bucket.
	for hi-lo > 8 {
		mid := lo + (hi-lo+1)/2
		if starts[mid] <= k {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	for lo < hi && starts[lo+1] <= k {
		lo++
	}
	return int(lo)
}

// Lookup returns the tasks that own the key. It takes tens of nanoseconds at
// any number of slices, no lock and no allocation.
func (a *Assignment) Lookup(k SliceKey) Replicas { return a.Replicas(a.Find(k)) }
