package assignment

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// content is what DeltaSum adds up, apart, so that of what a delta makes it is known in time by the
// delta.
type content struct {
	tasks  uint64
	slices uint64
	since  []sinceSum // of each generation of a table
	index  []uint32   // of each task: that of a task itself is in memory that holds more of it
}

// counts is what has been found out of an assignment's content, once something has needed it or it came
// with a delta.
type counts struct {
	atomic.Pointer[content]
	once     sync.Once
	checksum uint64
}

// sinceSum is of the owners since one generation.
type sinceSum struct {
	owners int
	sum    uint64
}

// DeltaSum is equal for equal assignments, as Checksum is. Of what Apply makes of an assignment of
// which it is known it takes time by the delta's size alone, where the slices that change are few of
// many. It is the sum, modulo 2^64, of an XXH64 of the header and the number of slices, of one for
// each task, of one for each slice (its start, and the Index of each owner in their order), and of one
// for each owner that owns since a generation above the horizon (the slice's start, the owner's Index,
// the generation), where numbers are 8 bytes, little-endian.
func (a *Assignment) DeltaSum() uint64 {
	s := summer{buf: make([]byte, 0, words(9)+len(a.h.Job)+len(a.h.Part))}
	s.d.Reset()
	s.header(a)
	s.u64(uint64(a.NumSlices()))
	x := a.content()
	sum := s.sum() + x.tasks + x.slices
	for _, g := range x.since {
		sum += g.sum
	}
	return sum
}

// Verified returns a if it has a checksum that another process has sent, nil if not. If a delta sum
// came with it and Apply has made a of few changes of many slices, that is compared in its place: the
// checksum, which takes time by all slices, is taken for a's then.
func (a *Assignment) Verified(checksum uint64, deltaSum *uint64) *Assignment {
	switch {
	case deltaSum == nil || a.patch == nil:
		if a.Checksum() != checksum {
			return nil
		}
		return a
	case a.DeltaSum() != *deltaSum:
		return nil
	}
	b := *a
	b.counts = new(counts)
	b.counts.Store(a.counts.Load())
	b.counts.once.Do(func() { b.counts.checksum = checksum })
	return &b
}

// content is a's, by the table of a's generations. If it is not known, it takes time by all slices.
func (a *Assignment) content() *content {
	x := a.counts.Load()
	if x == nil {
		x = &content{since: make([]sinceSum, len(a.c.SinceTable))}
		x.take(a.tasks)
		x.count(1, &a.c, 0, len(a.c.Starts), nil)
		a.counts.Store(x)
	}
	return x
}

// plus returns what is new and what stays, of which in has the numbers in the table of the new. It
// returns false if something stays that has no number there.
func (x *content) plus(rest *content, in *sinceNumbers) bool {
	x.slices += rest.slices
	for i, r := range rest.since {
		switch number := in[i+1]; {
		case number == 0:
		case number != absent:
			x.since[number-1].owners += r.owners
			x.since[number-1].sum += r.sum
		case r.owners > 0:
			return false
		}
	}
	return true
}

// follow makes the content of next known if base's is, in time by what d says of their difference.
// Both are in columns.
func (d *Delta) follow(base, next *Assignment, in *sinceNumbers) {
	was := base.counts.Load()
	if was == nil || next.counts.Load() != nil || next.h.Horizon < base.h.Horizon {
		return
	}
	rest, x := was.clone(), was.onTable(next.c.SinceTable)
	if len(d.Put)+len(d.Drop) > 0 {
		x.take(next.tasks)
	}
	i, j := 0, 0
	for _, e := range d.Edits {
		i, j = i+int(e.Keep), j+int(e.Keep)
		rest.count(-1, &base.c, i, i+int(e.Old), nil)
		x.count(1, &next.c, j, j+int(e.New), nil)
		i, j = i+int(e.Old), j+int(e.New)
	}
	if x.plus(&rest, in) {
		next.counts.Store(x)
	}
}

func (x *content) clone() content {
	return content{x.tasks, x.slices, slices.Clone(x.since), x.index}
}

// onTable is one without slices, of the same tasks, by another table of generations.
func (x *content) onTable(table []Generation) *content {
	return &content{tasks: x.tasks, since: make([]sinceSum, len(table)), index: x.index}
}

// take makes it one of these tasks.
func (x *content) take(tasks []Task) {
	x.tasks, x.index = sumTasks(tasks), make([]uint32, len(tasks))
	for i := range tasks {
		x.index[i] = tasks[i].Index
	}
}

// sumTasks is what a table of tasks adds to the sum.
func sumTasks(tasks []Task) (sum uint64) {
	s := summer{buf: make([]byte, 0, 1<<9)}
	for i := range tasks {
		s.d.Reset()
		s.task(&tasks[i])
		sum += s.sum()
		s.buf = s.buf[:0]
	}
	return sum
}

// count adds slices of columns, from the i-th to below end, n times: once, or to take them away -1
// times. in is which numbers the generations of their table have in that of x, nil for their own.
func (x *content) count(n int, c *Columns, i, end int, in *sinceNumbers) {
	times := uint64(n)
	for ; i < end; i++ {
		start := sumRound(uint64(c.Starts[i]))
		lo, hi := c.owners(i, i+1)
		if hi-lo != 1 {
			all := binary.LittleEndian.AppendUint64(make([]byte, 0, 8*9), uint64(c.Starts[i]))
			for _, owner := range c.Owners[lo:hi] {
				all = binary.LittleEndian.AppendUint64(all, uint64(x.index[owner]))
			}
			x.slices += times * xxhash.Sum64(all)
		}
		for k := lo; k < hi; k++ {
			owner := sumRound(uint64(x.index[c.Owners[k]]))
			if hi-lo == 1 {
				x.slices += times * sum64(sumNext(sumNext(sumStart+2*8, start), owner))
			}
			if c.Since == nil {
				continue
			}
			number := c.Since[k]
			if number == 0 {
				continue
			}
			g := uint64(c.SinceTable[number-1])
			if in != nil {
				if number = in[number]; number == 0 {
					continue // not above the horizon any more
				}
			}
			since := &x.since[number-1]
			since.owners += n
			since.sum += times * sum64(sumNext(sumNext(sumNext(sumStart+3*8, start), owner), sumRound(g)))
		}
	}
}

// XXH64 of two or three words, without a buffer for them and a call: of slices that change, which
// have one owner mostly, most of the time goes to it. It begins with sumStart and how many bytes there
// are, takes the round of each word, which may be a word of two sums, and ends with sum64
// (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, without the stripes of 32 bytes).
const (
	sumPrime1 = 0x9E3779B185EBCA87
	sumPrime2 = 0xC2B2AE3D27D4EB4F
	sumPrime3 = 0x165667B19E3779F9
	sumPrime4 = 0x85EBCA77C2B2AE63
	sumStart  = 0x27D4EB2F165667C5
)

func sumRound(word uint64) uint64 { return bits.RotateLeft64(word*sumPrime2, 31) * sumPrime1 }

func sumNext(sum, round uint64) uint64 {
	return bits.RotateLeft64(sum^round, 27)*sumPrime1 + sumPrime4
}

func sum64(sum uint64) uint64 {
	sum = (sum ^ sum>>33) * sumPrime2
	sum = (sum ^ sum>>29) * sumPrime3
	return sum ^ sum>>32
}
