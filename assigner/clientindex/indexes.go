package clientindex

import "math/bits"

// indexes knows which are taken.
type indexes struct {
	holders map[int]*client
	taken   []uint64 // the same as a bit set
	low     int      // all words before this one are full
}

func (x *indexes) holder(index int) *client { return x.holders[index] }

func (x *indexes) take(c *client, index int) {
	for len(x.taken) <= index/64 {
		x.taken = append(x.taken, 0)
	}
	x.taken[index/64] |= 1 << (index % 64)
	x.holders[index] = c
	c.index = index
}

func (x *indexes) free(index int) {
	x.taken[index/64] &^= 1 << (index % 64)
	delete(x.holders, index)
	x.low = min(x.low, index/64)
}

// smallest is the smallest index that is free.
func (x *indexes) smallest() int {
	for x.low < len(x.taken) && x.taken[x.low] == ^uint64(0) {
		x.low++
	}
	if x.low == len(x.taken) {
		return x.low * 64
	}
	return x.low*64 + bits.TrailingZeros64(^x.taken[x.low])
}

// highest is the highest that is taken, -1 if none.
func (x *indexes) highest() int {
	for i := len(x.taken) - 1; i >= 0; i-- {
		if w := x.taken[i]; w != 0 {
			return i*64 + 63 - bits.LeadingZeros64(w)
		}
	}
	return -1
}
