package handover

import (
	"slices"
	"sort"

	"github.com/slicer-project/slicer/assignment"
)

// state is where a range is.
type state int

const (
	away    state = iota // another server has it, or none
	loading              // this one owns it, and is asking for it
	here                 // this one has it
	frozen               // it has been taken by another one, which may not have it yet
)

// part is a range of keys and what is known of it.
type part struct {
	assignment.Slice
	state
	// asked is the newest generation by which a server, this one included, has asked for
	// the range, and given the one by which it has been given away for good.
	asked, given assignment.Generation
	rows         map[string]uint64
}

// ranges are the parts that cover all keys, in order.
type ranges []*part

func newRanges() ranges {
	return ranges{{Slice: assignment.Keyspace, rows: map[string]uint64{}}}
}

func (rs ranges) find(k assignment.SliceKey) int {
	return sort.Search(len(rs), func(i int) bool { return rs[i].End > k })
}

// of returns the parts of a slice, which it cuts at its ends if need be. What has
// been cut is not joined again, as a program that is to run for long would.
func (rs *ranges) of(s assignment.Slice) []*part {
	for _, at := range []assignment.SliceKey{s.Start, s.End} {
		i := rs.find(at)
		if i == len(*rs) || (*rs)[i].Start == at {
			continue
		}
		low := (*rs)[i]
		high := *low
		high.Start, high.rows = at, map[string]uint64{}
		low.End = at
		for key, n := range low.rows {
			if assignment.KeyOf(key) >= at {
				high.rows[key] = n
				delete(low.rows, key)
			}
		}
		*rs = slices.Insert(*rs, i+1, &high)
	}
	return (*rs)[rs.find(s.Start) : rs.find(s.End-1)+1]
}
