package subset

import (
	"fmt"
	"math/bits"
)

// Backends is an immutable set of backend task indexes. The zero value is
// empty; [Dense] and [Present] make others. It may be copied and shared freely.
//
// Indexes are expected to be nearly dense, as a control plane hands them out:
// the smallest free index to each new task. An index below the highest one
// that no task holds is a hole.
type Backends struct {
	span  int
	count int
	bits  []uint64 // nil if there are no holes
}

// Dense returns the tasks 0 to n-1. An n outside 1 to MaxTasks is refused by
// the algorithms that the set is given to.
func Dense(n int) Backends {
	return Backends{span: n, count: n}
}

// Present returns the set of the given indexes, in any order. Each must be 0
// to MaxTasks-1 and appear once; the error is a *[FieldError] that says which
// element is not so. The slice is not retained.
func Present(indexes []int) (Backends, error) {
	span := 0
	for i, t := range indexes {
		if t < 0 || t >= MaxTasks {
			return Backends{}, checkRange(fmt.Sprintf("Backends[%d]", i), t, 0, MaxTasks-1)
		}
		span = max(span, t+1)
	}
	words := make([]uint64, (span+63)/64)
	for i, t := range indexes {
		if words[t/64]>>(t%64)&1 != 0 {
			return Backends{}, &FieldError{Field: fmt.Sprintf("Backends[%d]", i), Value: t, Want: "each index once"}
		}
		words[t/64] |= 1 << (t % 64)
	}
	if span == len(indexes) {
		return Dense(span), nil
	}
	return Backends{span: span, count: len(indexes), bits: words}, nil
}

// Len returns the number of tasks in the set: N.
func (b Backends) Len() int { return b.count }

// Span returns the highest index in the set plus 1, or 0 if it is empty.
// Span equals Len if there are no holes.
func (b Backends) Span() int { return b.span }

// Has reports whether task is in the set.
func (b Backends) Has(task int) bool {
	if task < 0 || task >= b.span {
		return false
	}
	return b.bits == nil || b.bits[task/64]>>(task%64)&1 != 0
}

// Append appends the set's tasks to dst in ascending order.
func (b Backends) Append(dst []int) []int {
	return b.appendFrom(dst, 0, b.count)
}

// appendFrom appends n tasks in ascending order, cyclically, beginning with the
// one that has rank others below it. 0 <= rank <= Len, n <= Len.
func (b Backends) appendFrom(dst []int, rank, n int) []int {
	task := b.selectRank(rank)
	for ; n > 0; n-- {
		for !b.Has(task) {
			task++
			if task >= b.span {
				task = 0
			}
		}
		dst = append(dst, task)
		task++
	}
	return dst
}

// selectRank returns the task that has rank others below it, or Span.
func (b Backends) selectRank(rank int) int {
	if b.bits == nil {
		return rank
	}
	for i, word := range b.bits {
		n := bits.OnesCount64(word)
		if rank >= n {
			rank -= n
			continue
		}
		for ; rank > 0; rank-- {
			word &= word - 1
		}
		return i*64 + bits.TrailingZeros64(word)
	}
	return b.span
}
