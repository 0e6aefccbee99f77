package distributor

import (
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// base takes a piece of a base from the assigner. One that does not decode counts
// as none.
func (a *attachment) base(j *job, m *slicerv1.JobAssignment) {
	s := a.bases[j.name]
	if s == nil {
		s = new(wire.Assembler)
		a.bases[j.name] = s
	}
	var err error
	if c := m.GetChunk(); c != nil {
		if err = s.Add(c); err == nil {
			return
		}
	}
	delete(a.bases, j.name)
	var got *assignment.Assignment
	switch t := m.GetTrailer(); {
	case err != nil:
	case t == nil: // it has none
	case t.GetBase() != 0:
		err = fmt.Errorf("a delta, where a whole was asked for")
	default:
		got, err = s.Finish(t, nil)
	}
	if err != nil {
		j.log.Error("base does not decode", "assigner", a.ID, "error", err)
	}
	j.step(time.Now(), fanout.BaseOffered{From: a.Session, Assignment: got})
}
