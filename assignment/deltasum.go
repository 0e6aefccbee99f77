package assignment

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// content is what DeltaSum adds up, apart, so that of what a delta makes it is known in time by the
// delta.
type content struct {
	tasks  uint64
	slices uint64
	since  []sinceSum // of each generation of a table
}

// counts is where a content is once something has needed it, or it came with a delta.
type counts struct{ atomic.Pointer[content] }

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
	b.sum = func() uint64 { return checksum }
	return &b
}

// content is a's, by the table of a's generations. If it is not known, it takes time by all slices.
func (a *Assignment) content() *content {
	x := a.counts.Load()
	if x == nil {
		x = &content{tasks: sumTasks(a.tasks), since: make([]sinceSum, len(a.c.SinceTable))}
		for i := range a.c.Starts {
			x.count(1, a, i, nil)
		}
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
	rest, x := was.clone(), &content{tasks: was.tasks, since: make([]sinceSum, len(next.c.SinceTable))}
	if len(d.Put)+len(d.Drop) > 0 {
		x.tasks = sumTasks(next.tasks)
	}
	i, j := 0, 0
	for _, e := range d.Edits {
		i, j = i+int(e.Keep), j+int(e.Keep)
		for range e.Old {
			rest.count(-1, base, i, nil)
			i++
		}
		for range e.New {
			x.count(1, next, j, nil)
			j++
		}
	}
	if x.plus(rest, in) {
		next.counts.Store(x)
	}
}

func (x *content) clone() *content {
	return &content{x.tasks, x.slices, slices.Clone(x.since)}
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

// count adds the i-th slice of a, which is in columns, n times: once, or to take it away -1 times.
// in is which numbers the generations of a's table have in that of x, nil for their own.
func (x *content) count(n int, a *Assignment, i int, in *sinceNumbers) {
	start := uint64(a.c.Starts[i])
	lo, hi := a.c.owners(i, i+1)
	several := hi-lo != 1
	var all []byte
	if several {
		all = binary.LittleEndian.AppendUint64(make([]byte, 0, 8*9), start)
	}
	for k := lo; k < hi; k++ {
		index := uint64(a.tasks[a.c.Owners[k]].Index)
		if several {
			all = binary.LittleEndian.AppendUint64(all, index)
		} else {
			x.slices += uint64(n) * sum64(sumWord(sumWord(sumStart+2*8, start), index))
		}
		if a.c.Since == nil || a.c.Since[k] == 0 {
			continue
		}
		number, g := a.c.Since[k], a.c.SinceTable[a.c.Since[k]-1]
		if in != nil {
			number = in[number]
		}
		if number == 0 {
			continue // not above the horizon any more
		}
		since := &x.since[number-1]
		since.owners += n
		since.sum += uint64(n) * sum64(sumWord(sumWord(sumWord(sumStart+3*8, start), index), uint64(g)))
	}
	if several {
		x.slices += uint64(n) * xxhash.Sum64(all)
	}
}

// XXH64 of two or three words, without a buffer for them and a call: of slices that change, which
// have one owner mostly, most of the time goes to it. It begins with sumStart and how many bytes there
// are, takes each word, and ends with sum64
// (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, without the stripes of 32 bytes).
const (
	sumPrime1 = 0x9E3779B185EBCA87
	sumPrime2 = 0xC2B2AE3D27D4EB4F
	sumPrime3 = 0x165667B19E3779F9
	sumPrime4 = 0x85EBCA77C2B2AE63
	sumStart  = 0x27D4EB2F165667C5
)

func sumWord(sum, word uint64) uint64 {
	return bits.RotateLeft64(sum^bits.RotateLeft64(word*sumPrime2, 31)*sumPrime1, 27)*sumPrime1 + sumPrime4
}

func sum64(sum uint64) uint64 {
	sum = (sum ^ sum>>33) * sumPrime2
	sum = (sum ^ sum>>29) * sumPrime3
	return sum ^ sum>>32
}
