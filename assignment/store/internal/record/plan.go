package record

import (
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
)

// Change is what one write does.
type Change struct {
	// Head as it will be. Generation is the new one's record.
	Head       *Head
	Generation *Generation
	// Pieces have to be there before the records are, or come with them.
	Pieces []KV
	// The generations from DropFrom to below DropTo are kept no longer; both are
	// 0 when there are none.
	DropFrom, DropTo assignment.Generation
}

// Records returns the head's record and the generation's.
func (l Layout) Records(job string, c *Change) (head, generation KV) {
	return KV{l.Head(job), l.EncodeHead(job, c.Head)},
		KV{l.Generation(job, c.Generation.Generation), l.EncodeGeneration(job, c.Generation)}
}

// Plan says how next is written after base, whose head is given; both are nil
// for a job's first assignment. keep is how many generations stay readable, and
// attempt a random number. next must follow base.
func (l Layout) Plan(head *Head, base, next *assignment.Assignment, keep int, attempt uint64) (*Change, error) {
	c := &Change{
		Head: &Head{Generation: next.Generation(), Checksum: next.Checksum()},
		Generation: &Generation{
			Generation: next.Generation(), Previous: next.Previous(), Checksum: next.Checksum(), Attempt: attempt,
		},
	}
	var delta []byte
	if base != nil {
		d, err := assignment.Diff(base, next)
		if err != nil {
			return nil, err
		}
		if delta, err = wire.EncodeDelta(d); err != nil {
			return nil, err
		}
		c.Head.Segments = append(c.Head.Segments, head.Segments...)
		c.Head.Entries = head.Entries
	}
	if n := len(c.Head.Segments); n > 0 && c.Head.Segments[n-1].takes(len(delta)) {
		s := &c.Head.Segments[n-1]
		s.Generations++
		s.Deltas += len(delta)
	} else {
		whole, err := wire.EncodeAssignment(next)
		if err != nil {
			return nil, err
		}
		packed, size := whole, 0
		if l.Compress {
			packed, size = wire.Deflate(whole), len(whole)
		}
		if len(delta) >= len(packed) {
			delta = nil
		}
		if c.Generation.Whole, err = l.split(c, next.Job(), 'w', packed, 0); err != nil {
			return nil, err
		}
		c.Generation.Whole.Becomes = size
		c.Head.Segments = append(c.Head.Segments, Segment{First: next.Generation(), Generations: 1, Whole: len(whole)})
	}
	var err error
	if c.Generation.Delta, err = l.split(c, next.Job(), 'd', delta, InlineDelta); err != nil {
		return nil, err
	}
	c.drop(keep)
	return c, nil
}

// takes reports whether a delta may be added.
func (s *Segment) takes(delta int) bool {
	return s.Generations < MaxSegment && s.Deltas+delta <= s.Whole
}

// split cuts data into pieces, unless it fits inline.
func (l Layout) split(c *Change, job string, kind byte, data []byte, inline int) (Blob, error) {
	switch {
	case len(data) > wire.MaxEncodedSize:
		return Blob{}, fmt.Errorf("assignment of %d bytes, at most %d are allowed", len(data), wire.MaxEncodedSize)
	case len(data) <= inline:
		return Blob{Size: len(data), Inline: data}, nil
	}
	b := Blob{Size: len(data), Pieces: piecesOf(len(data))}
	prefix := l.AttemptChunks(job, c.Generation.Generation, c.Generation.Attempt)
	for i := range b.Pieces {
		key := fmt.Sprintf("%s%c%04d", prefix, kind, i)
		c.Pieces = append(c.Pieces, KV{key, l.Seal(key, data[i*PieceSize:min((i+1)*PieceSize, len(data))])})
	}
	return b, nil
}

// drop lets go of the oldest segments as long as the others hold enough.
func (c *Change) drop(keep int) {
	kept, from := 0, len(c.Head.Segments)
	for from > 0 && kept < keep {
		from--
		kept += c.Head.Segments[from].Generations
	}
	if from == 0 {
		return
	}
	c.DropFrom, c.DropTo = c.Head.Segments[0].First, c.Head.Segments[from].First
	c.Head.Segments = c.Head.Segments[from:]
}
