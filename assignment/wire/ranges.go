package wire

import (
	"fmt"

	"github.com/slicer-project/slicer/assignment"
)

// rangesToColumns gives ranges in key order as distances and widths.
func rangesToColumns(rs []assignment.Slice) (skip, width []uint64) {
	both := make([]uint64, 2*len(rs))
	skip, width = both[:len(rs):len(rs)], both[len(rs):]
	var end assignment.SliceKey
	for i, r := range rs {
		skip[i], width[i] = uint64(r.Start-end), r.Width()
		end = r.End
	}
	return skip, width
}

// checkColumns refuses distances and widths that are not those of ranges in the
// keyspace.
func checkColumns(skip, width []uint64) error {
	if len(skip) != len(width) || len(skip) > assignment.MaxSlices {
		return fmt.Errorf("%d range distances for %d widths, at most %d are allowed", len(skip), len(width), assignment.MaxSlices)
	}
	left := uint64(assignment.KeyspaceEnd)
	for i := range skip {
		if skip[i] >= left || width[i] == 0 || width[i] > left-skip[i] {
			return fmt.Errorf("range %d is empty or past the keyspace", i)
		}
		left -= skip[i] + width[i]
	}
	return nil
}

// columnsToRanges returns the ranges of columns that have been checked, in key
// order and apart.
func columnsToRanges(skip, width []uint64) []assignment.Slice {
	rs := make([]assignment.Slice, len(skip))
	end := assignment.SliceKey(0)
	for i := range rs {
		start := end + assignment.SliceKey(skip[i])
		end = start + assignment.SliceKey(width[i])
		rs[i] = assignment.Slice{Start: start, End: end}
	}
	return rs
}
