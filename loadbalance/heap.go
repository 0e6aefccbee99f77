package loadbalance

import "slices"

// taskHeap is an indexed heap of tasks, smallest key first; equal keys by
// position, so that the order depends on nothing else.
type taskHeap struct {
	key []float64 // by task
	at  []int32   // by task: place in ids, -1 if not in the heap
	ids []uint32

	front []int // room for first
}

func newTaskHeap(tasks int, ids []uint32, key func(uint32) float64) *taskHeap {
	h := &taskHeap{key: make([]float64, tasks), at: make([]int32, tasks), ids: append([]uint32(nil), ids...)}
	for i := range h.at {
		h.at[i] = -1
	}
	for i, t := range h.ids {
		h.key[t], h.at[t] = key(t), int32(i)
	}
	for i := len(h.ids)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
	return h
}

func (h *taskHeap) len() int    { return len(h.ids) }
func (h *taskHeap) top() uint32 { return h.ids[0] }

// set changes the key of a task, if it is in the heap.
func (h *taskHeap) set(t uint32, key float64) {
	if h.at[t] < 0 {
		return
	}
	h.key[t] = key
	h.down(h.up(int(h.at[t])))
}

// drop takes a task out, if it is in the heap.
func (h *taskHeap) drop(t uint32) {
	i := int(h.at[t])
	if i < 0 {
		return
	}
	last := len(h.ids) - 1
	h.swap(i, last)
	h.ids = h.ids[:last]
	h.at[t] = -1
	if i < last {
		h.down(h.up(i))
	}
}

// first returns the task with the smallest key among those that ok accepts.
// It looks at as many tasks as it refuses, and their children.
func (h *taskHeap) first(ok func(uint32) bool) (uint32, bool) {
	if len(h.ids) == 0 {
		return 0, false
	}
	if ok(h.ids[0]) {
		return h.ids[0], true
	}
	// The frontier of places whose parents were all refused.
	front := append(h.front[:0], 0)
	defer func() { h.front = front }()
	for len(front) > 0 {
		best := 0
		for i := 1; i < len(front); i++ {
			if h.less(front[i], front[best]) {
				best = i
			}
		}
		i := front[best]
		if i > 0 && ok(h.ids[i]) {
			return h.ids[i], true
		}
		front[best] = front[len(front)-1]
		front = front[:len(front)-1]
		for c := 2*i + 1; c <= 2*i+2 && c < len(h.ids); c++ {
			front = append(front, c)
		}
	}
	return 0, false
}

func (h *taskHeap) less(i, j int) bool {
	a, b := h.ids[i], h.ids[j]
	return h.key[a] < h.key[b] || h.key[a] == h.key[b] && a < b
}

func (h *taskHeap) swap(i, j int) {
	h.ids[i], h.ids[j] = h.ids[j], h.ids[i]
	h.at[h.ids[i]], h.at[h.ids[j]] = int32(i), int32(j)
}

func (h *taskHeap) up(i int) int {
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i
}

func (h *taskHeap) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h.ids) {
			return
		}
		if c+1 < len(h.ids) && h.less(c+1, c) {
			c++
		}
		if !h.less(c, i) {
			return
		}
		h.swap(i, c)
		i = c
	}
}

// pieceHeap orders pieces by a key that was right at their version; what
// pops one checks that it still is. Equal keys by number.
type pieceHeap []pieceKey

type pieceKey struct {
	key     float64
	id      int32
	version uint32
}

func (k pieceKey) compare(l pieceKey) int {
	switch {
	case k.key < l.key:
		return -1
	case k.key > l.key:
		return 1
	}
	return int(k.id - l.id)
}

// sortedOut moves the keys that ok accepts to the front, in order.
func sortedOut(keys []pieceKey, ok func(pieceKey) bool) (sorted, rest []pieceKey) {
	n := 0
	for i, k := range keys {
		if ok(k) {
			keys[i], keys[n] = keys[n], k
			n++
		}
	}
	slices.SortFunc(keys[:n], pieceKey.compare)
	return keys[:n], keys[n:]
}

func (h pieceHeap) less(i, j int) bool { return h[i].compare(h[j]) < 0 }

func (h pieceHeap) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *pieceHeap) push(k pieceKey) {
	*h = append(*h, k)
	s := *h
	for i := len(s) - 1; i > 0 && s.less(i, (i-1)/2); i = (i - 1) / 2 {
		s[i], s[(i-1)/2] = s[(i-1)/2], s[i]
	}
}

func (h *pieceHeap) pop() pieceKey {
	s := *h
	k := s[0]
	s[0] = s[len(s)-1]
	*h = s[:len(s)-1]
	h.down(0)
	return k
}

func (h pieceHeap) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h.less(c+1, c) {
			c++
		}
		if !h.less(c, i) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
