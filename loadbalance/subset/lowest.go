package subset

import "slices"

// appendLowest appends the k tasks of b with the lowest keys, lowest first;
// tasks of equal keys go by index. k is 1 to b.Len().
//
// The tasks kept so far form a heap, highest key at the root, in dst itself.
// Keys are computed again when they are compared: a few multiplications cost
// less than memory to hold them.
func appendLowest(dst []int, b Backends, k int, key func(task int) uint64) []int {
	base := len(dst)
	dst = slices.Grow(dst, k)
	task := 0
	for ; len(dst) < base+k; task++ {
		if b.Has(task) {
			dst = append(dst, task)
		}
	}
	heap := dst[base:]
	for i := k/2 - 1; i >= 0; i-- {
		siftDown(heap, i, key)
	}
	top := key(heap[0])
	for ; task < b.Span(); task++ {
		// A later task has the higher index, so at equal keys it loses.
		if b.Has(task) && key(task) < top {
			heap[0] = task
			siftDown(heap, 0, key)
			top = key(heap[0])
		}
	}
	for end := k - 1; end > 0; end-- {
		heap[0], heap[end] = heap[end], heap[0]
		siftDown(heap[:end], 0, key)
	}
	return dst
}

// siftDown moves the task at place i down to where the heap's order holds.
func siftDown(heap []int, i int, key func(task int) uint64) {
	task := heap[i]
	taskKey := key(task)
	for {
		child := 2*i + 1
		if child >= len(heap) {
			break
		}
		childKey := key(heap[child])
		if right := child + 1; right < len(heap) {
			if k := key(heap[right]); above(k, heap[right], childKey, heap[child]) {
				child, childKey = right, k
			}
		}
		if !above(childKey, heap[child], taskKey, task) {
			break
		}
		heap[i] = heap[child]
		i = child
	}
	heap[i] = task
}

// above reports whether task a with key ka comes after task b with key kb.
func above(ka uint64, a int, kb uint64, b int) bool {
	return ka > kb || ka == kb && a > b
}
