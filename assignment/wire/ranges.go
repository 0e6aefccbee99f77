package wire

import (
	"fmt"

	"github.com/slicer-project/slicer/assignment"
)

// rangesToColumns gives ranges in key order as distances and widths.
func rangesToColumns(rs []assignment.Slice) (skip, width []uint64) {
	skip, width = make([]uint64, len(rs)), make([]uint64, len(rs))
	var end assignment.SliceKey
	for i, r := range rs {
		skip[i], width[i] = uint64(r.Start-end), r.Width()
		end = r.End
	}
	return skip, width
}

// columnsToRanges returns valid ranges, in key order and apart.
func columnsToRanges(skip, width []uint64) ([]assignment.Slice, error) {
	if len(skip) != len(width) || len(skip) > assignment.MaxSlices {
		return nil, fmt.Errorf("%d range distances for %d widths, at most %d are allowed", len(skip), len(width), assignment.MaxSlices)
	}
	rs := make([]assignment.Slice, len(skip))
	left := uint64(assignment.KeyspaceEnd)
	for i := range rs {
		if skip[i] >= left || width[i] == 0 || width[i] > left-skip[i] {
			return nil, fmt.Errorf("range %d is empty or past the keyspace", i)
		}
		start := uint64(assignment.KeyspaceEnd) - left + skip[i]
		rs[i] = assignment.Slice{Start: assignment.SliceKey(start), End: assignment.SliceKey(start + width[i])}
		left -= skip[i] + width[i]
	}
	return rs, nil
}
