package wire

import (
	"errors"
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// PartFrame encodes a part with its moves: as a delta on the part for the same task that the
// subscriber holds, or whole if base is nil.
func PartFrame(base, a *assignment.Assignment) (*Frame, error) {
	var m slicerv1.Part
	var on assignment.Generation
	var err error
	if base == nil {
		m.Assignment, err = EncodeAssignment(a)
	} else {
		m.Assignment, err = encodeDiff(base, a)
		on = base.Generation()
	}
	if err != nil {
		return nil, err
	}
	moves := a.Moves()
	for _, x := range []struct {
		a  *assignment.Assignment
		to *[]byte
	}{{moves.From, &m.From}, {moves.To, &m.To}} {
		if x.a == nil || x.a.NumOwners() == 0 {
			continue // nothing has come, or gone
		}
		data, err := EncodeAssignment(x.a)
		if err != nil {
			return nil, err
		}
		*x.to = data
	}
	data, err := deterministic.Marshal(&m)
	if err != nil {
		return nil, err
	}
	f := newFrame(data, on, a)
	f.Trailer.Part = true
	return f, nil
}

// decodePart decodes the chunks of a part. The part itself is checked against the trailer by
// what calls it; its moves only tell listeners of others.
func decodePart(t *slicerv1.Trailer, data []byte, base *assignment.Assignment) (*assignment.Assignment, error) {
	if t.GetWholeSize() != 0 {
		return nil, malformed("part", errors.New("the trailer says that it is compressed, which a part never is"))
	}
	var m slicerv1.Part
	err := unmarshal("part", data, &m)
	if err != nil {
		return nil, err
	}
	var a *assignment.Assignment
	if t.GetBase() == 0 {
		a, err = DecodeWholeOrPart(m.GetAssignment())
	} else {
		a, err = decodeDelta(t, m.GetAssignment(), base)
	}
	if err != nil {
		return nil, err
	}
	if a.Part() == "" {
		return nil, malformed("part", errors.New("the assignment in it is whole"))
	}
	var moves assignment.Moves
	if moves.From, err = decodeMoved(a, m.GetFrom()); err == nil {
		moves.To, err = decodeMoved(a, m.GetTo())
	}
	switch {
	case err != nil:
		return nil, err
	case moves.From != nil && moves.From.Generation() >= a.Generation():
		return nil, malformed("part", fmt.Errorf("from is of generation %d, the part of %d", moves.From.Generation(), a.Generation()))
	case moves.To != nil && moves.To.Generation() != a.Generation():
		return nil, malformed("part", fmt.Errorf("to is of generation %d, the part of %d", moves.To.Generation(), a.Generation()))
	}
	return a.WithMoves(moves), nil
}

// decodeMoved decodes what is told besides of a part; nil for nothing.
func decodeMoved(a *assignment.Assignment, data []byte) (*assignment.Assignment, error) {
	if len(data) == 0 {
		return nil, nil
	}
	b, err := DecodeWholeOrPart(data)
	if err != nil {
		return nil, err
	}
	if of, want := b.Header(), a.Header(); !of.Comparable(&want) {
		return nil, malformed("part", fmt.Errorf("from or to is of %v, not of %v", &of, &want))
	}
	return b, nil
}
