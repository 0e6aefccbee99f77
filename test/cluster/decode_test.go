package cluster

import (
	"bytes"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// decoder shares what frames decode to: tens of processes take the same ones, and most of
// a run's time would go into decoding them again. A frame is the same only if all its
// bytes, its trailer and its base are, so no outcome is another.
type decoder struct {
	known [16]decoded
	next  int
}

type decoded struct {
	data            []byte
	trailer         *slicerv1.Trailer
	base, assembled *assignment.Assignment
}

// frame decodes bytes that a trailer ends.
func (d *decoder) frame(t *slicerv1.Trailer, data []byte, base *assignment.Assignment) (*assignment.Assignment, error) {
	if t.GetBase() == 0 {
		base = nil // a whole assignment is based on nothing
	}
	for i := range d.known {
		k := &d.known[i]
		if k.base == base && bytes.Equal(k.data, data) && k.trailer.GetGeneration() == t.GetGeneration() &&
			k.trailer.GetBase() == t.GetBase() && k.trailer.GetChecksum() == t.GetChecksum() && k.trailer.GetSize() == t.GetSize() && k.trailer.GetWholeSize() == t.GetWholeSize() {
			return k.assembled, nil
		}
	}
	var asm wire.Assembler
	if err := asm.Add(&slicerv1.Chunk{Data: data}); err != nil {
		return nil, err
	}
	a, err := asm.Finish(t, base)
	if err != nil {
		return nil, err
	}
	for i := range d.known { // one for all that hold the generation, whatever they were sent
		if k := d.known[i].assembled; k != nil && k.Generation() == a.Generation() && k.StoreID() == a.StoreID() && k.Checksum() == a.Checksum() {
			a = k
			break
		}
	}
	d.next = (d.next + 1) % len(d.known)
	d.known[d.next] = decoded{bytes.Clone(data), t, base, a}
	return a, nil
}

// assembler is wire.Assembler with a decoder.
type assembler struct{ data []byte }

// take returns the assignment that a message ends, nil if it ends none.
func (s *assembler) take(d *decoder, c *slicerv1.Chunk, t *slicerv1.Trailer, base *assignment.Assignment) (*assignment.Assignment, error) {
	if c != nil {
		s.data = append(s.data, c.GetData()...)
	}
	if t == nil {
		return nil, nil
	}
	data := s.data
	s.data = s.data[:0]
	return d.frame(t, data, base)
}
