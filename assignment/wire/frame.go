package wire

import (
	"errors"
	"fmt"
	"iter"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// ErrChecksum is matched when what arrived is not what the trailer promises:
// ask for the whole.
var ErrChecksum = errors.New("checksum mismatch")

// Chunks cuts encoded bytes into pieces of at most MaxChunk. The pieces share data.
func Chunks(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(data) > 0 {
			n := min(len(data), MaxChunk)
			if !yield(data[:n:n]) {
				return
			}
			data = data[n:]
		}
	}
}

// Frame is one assignment as it is sent: the bytes of an Assignment or a Delta,
// and the trailer that ends them. It is immutable, so one Frame serves every
// subscriber on the same base.
type Frame struct {
	Data    []byte
	Trailer *slicerv1.Trailer
}

// Responses are the frame as subscribers get it: chunks, then the trailer.
func (f *Frame) Responses() iter.Seq[*slicerv1.WatchResponse] {
	return messages(f,
		func(c *slicerv1.Chunk) *slicerv1.WatchResponse {
			return &slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Chunk{Chunk: c}}
		},
		func(t *slicerv1.Trailer) *slicerv1.WatchResponse {
			return &slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Trailer{Trailer: t}}
		})
}

// Pieces are the frame as Distributors get it, of the job.
func (f *Frame) Pieces(job string) iter.Seq[*slicerv1.JobAssignment] {
	return messages(f,
		func(c *slicerv1.Chunk) *slicerv1.JobAssignment {
			return &slicerv1.JobAssignment{Job: job, Piece: &slicerv1.JobAssignment_Chunk{Chunk: c}}
		},
		func(t *slicerv1.Trailer) *slicerv1.JobAssignment {
			return &slicerv1.JobAssignment{Job: job, Piece: &slicerv1.JobAssignment_Trailer{Trailer: t}}
		})
}

func messages[M any](f *Frame, chunk func(*slicerv1.Chunk) M, trailer func(*slicerv1.Trailer) M) iter.Seq[M] {
	return func(yield func(M) bool) {
		for data := range Chunks(f.Data) {
			if !yield(chunk(&slicerv1.Chunk{Data: data})) {
				return
			}
		}
		yield(trailer(f.Trailer))
	}
}

// WholeFrame encodes an assignment whole.
func WholeFrame(a *assignment.Assignment) (*Frame, error) {
	data, err := EncodeAssignment(a)
	if err != nil {
		return nil, err
	}
	return newFrame(data, 0, a), nil
}

// DeltaFrame encodes what turns base into a.
func DeltaFrame(base, a *assignment.Assignment) (*Frame, error) {
	data, err := encodeDiff(base, a)
	if err != nil {
		return nil, err
	}
	f := newFrame(data, base.Generation(), a)
	if a.NumSlices() >= assignment.PartFrom {
		f.Trailer.DeltaSum = new(a.DeltaSum())
	}
	return f, nil
}

func newFrame(data []byte, base assignment.Generation, a *assignment.Assignment) *Frame {
	return &Frame{Data: data, Trailer: &slicerv1.Trailer{
		Generation: int64(a.Generation()), Base: int64(base), Checksum: a.Checksum(), Size: uint64(len(data)),
	}}
}

// Assembler puts one stream's chunks together. The zero value is ready; it is
// not safe for concurrent use.
type Assembler struct {
	// Parts: what comes may be a part. Otherwise parts are malformed.
	Parts bool
	data  []byte
}

// Add takes the next chunk. It copies the data.
func (s *Assembler) Add(c *slicerv1.Chunk) error {
	if n := len(s.data) + len(c.GetData()); n > MaxEncodedSize {
		s.data = nil
		return malformed("assignment", fmt.Errorf("more than %d bytes in chunks", MaxEncodedSize))
	}
	s.data = append(s.data, c.GetData()...)
	return nil
}

// Take is Add or Finish of a message to a subscriber: it returns the assignment that the
// message ends, nil if it ends none.
func (s *Assembler) Take(m *slicerv1.WatchResponse, base *assignment.Assignment) (*assignment.Assignment, error) {
	switch m := m.GetMessage().(type) {
	case *slicerv1.WatchResponse_Chunk:
		return nil, s.Add(m.Chunk)
	case *slicerv1.WatchResponse_Trailer:
		return s.Finish(m.Trailer, base)
	}
	return nil, nil
}

// Finish decodes the chunks since the last trailer, applies them to base if
// they are a delta, and checks the result against the trailer. Whatever the
// outcome the next chunk begins anew. base may be nil. Errors match
// ErrMalformed, ErrChecksum or assignment.ErrBase.
func (s *Assembler) Finish(t *slicerv1.Trailer, base *assignment.Assignment) (*assignment.Assignment, error) {
	data := s.data
	// Assignments of one job are of similar size, but a single giant one must
	// not be paid for ever.
	if s.data = s.data[:0]; cap(s.data) > 4*len(data)+1<<16 {
		s.data = nil
	}
	if uint64(len(data)) != t.GetSize() {
		return nil, malformed("assignment", fmt.Errorf("%d bytes in chunks, the trailer says %d", len(data), t.GetSize()))
	}
	if t.GetPart() && !s.Parts {
		return nil, malformed("assignment", errors.New("it is a part, where the whole is asked for"))
	}
	a, err := decodeFrame(t, data, base)
	if err != nil {
		return nil, err
	}
	if anyBase {
		return a, nil
	}
	if a.Generation() == assignment.Generation(t.GetGeneration()) {
		if b := a.Verified(t.GetChecksum(), t.DeltaSum); b != nil {
			return b, nil
		}
	}
	sums := ""
	if t.DeltaSum != nil {
		sums = fmt.Sprintf("; delta sum %016x, the trailer says %016x", a.DeltaSum(), t.GetDeltaSum())
	}
	return nil, fmt.Errorf("%w: generation %d with checksum %016x, the trailer says generation %d with %016x%s",
		ErrChecksum, a.Generation(), a.Checksum(), t.GetGeneration(), t.GetChecksum(), sums)
}

func decodeFrame(t *slicerv1.Trailer, data []byte, base *assignment.Assignment) (*assignment.Assignment, error) {
	switch {
	case t.GetPart():
		return decodePart(t, data, base)
	case t.GetBase() == 0 && t.GetWholeSize() != 0:
		var err error
		if data, err = Inflate(data, t.GetWholeSize()); err != nil {
			return nil, err
		}
		fallthrough
	case t.GetBase() == 0:
		return DecodeAssignment(data)
	case t.GetWholeSize() != 0:
		return nil, malformed("delta", fmt.Errorf("the trailer says that it becomes a whole of %d bytes; a delta is never compressed", t.GetWholeSize()))
	}
	return decodeDelta(t, data, base)
}

func decodeDelta(t *slicerv1.Trailer, data []byte, base *assignment.Assignment) (*assignment.Assignment, error) {
	d, err := DecodeDelta(data)
	if err != nil {
		return nil, err
	}
	if base == nil || d.Base != assignment.Generation(t.GetBase()) {
		return nil, fmt.Errorf("%w: a delta on generation %d has nothing to stand on", assignment.ErrBase, t.GetBase())
	}
	if anyBase {
		d.Base = base.Generation()
	}
	return assignment.Apply(base, d)
}
