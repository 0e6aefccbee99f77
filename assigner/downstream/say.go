package downstream

import (
	"iter"
	"time"

	"github.com/slicer-project/slicer/assigner/clientindex"
	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Say is the answer to Ready: what a Distributor is to be told.
type Say struct {
	Job        string
	Assignment *assignment.Assignment // nil for what is not one, and for a base that is not to be had
	Base       bool                   // it is an older one, which was asked for

	message *slicerv1.AttachResponse
	encode  Encode
	since   time.Duration // when the assignment became the newest
}

// Frame encodes what is an assignment, which takes time if it is large. It is nil for
// what is not.
func (s *Say) Frame() (*wire.Frame, error) {
	if s.encode == nil {
		return nil, nil
	}
	return s.encode()
}

// Messages are what is to be sent, of an assignment in pieces. f is its Frame, nil if it
// does not encode, and now is asked for the time on the monotonic clock.
func (s *Say) Messages(f *wire.Frame, now func() time.Duration) iter.Seq[*slicerv1.AttachResponse] {
	return func(yield func(*slicerv1.AttachResponse) bool) {
		switch {
		case s.message != nil:
			yield(s.message)
			return
		case f == nil && s.Base:
			yield(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Base{Base: &slicerv1.JobAssignment{Job: s.Job}}})
			return
		case f == nil:
			return
		}
		for p := range f.Pieces(s.Job) {
			m := &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Assignment{Assignment: p}}
			if s.Base {
				m.Message = &slicerv1.AttachResponse_Base{Base: p}
			} else if p.GetTrailer() != nil {
				p.AgeUs = max(now()-s.since, 0).Microseconds()
			}
			if !yield(m) {
				return
			}
		}
	}
}

// next is what a Distributor is to be told next, nil if nothing.
func (j *Job) next(w *watcher, s clientindex.Session) *Say {
	switch {
	case w == nil:
		return nil
	case w.status:
		if w.status = false; j.status != nil { // else it follows when the store has answered
			return &Say{Job: j.name, message: &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Status{Status: j.status}}}
		}
	}
	if w.quotas.due {
		return &Say{Job: j.name, message: j.quotasFor(Session(s), w)}
	}
	if w.indexes {
		if m := j.indexes(s); m != nil {
			return &Say{Job: j.name, message: m}
		}
		w.indexes = false
	}
	if base := w.base; base != nil {
		w.base = nil
		return base
	}
	if !w.assignment {
		return nil
	}
	w.assignment = false
	a := j.frames.newest
	if !w.wants || a == nil || j.waits(w.newest, a) || w.held.Store == a.StoreID() && w.held.Generation > a.Generation() || w.held == markOf(a) {
		return nil // nothing that it lacks, or not yet
	}
	say := &Say{Job: j.name, Assignment: a, encode: j.frames.frame(w.held, w.reads), since: j.frames.since}
	// A Want that comes from now on is about what is being sent, or asks anew.
	w.held = markOf(a)
	return say
}

// indexes are those that a Distributor's clients are to be told, nil if there are none.
func (j *Job) indexes(s clientindex.Session) *slicerv1.AttachResponse {
	grants := j.clients.Take(s, maxIndexes)
	if len(grants) == 0 {
		return nil
	}
	m := &slicerv1.ClientIndexes{Job: j.name, Indexes: make([]*slicerv1.ClientIndex, len(grants))}
	for i, g := range grants {
		m.Indexes[i] = &slicerv1.ClientIndex{ClientId: g.ID, Index: uint32(g.Index)}
	}
	return &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_ClientIndexes{ClientIndexes: m}}
}

// waits reports whether a is not what a slicelet of the Distributor holds already and the
// job's next generation will be newer than.
func (j *Job) waits(newest generate.Held, a *assignment.Assignment) bool {
	if newest.Store != a.StoreID() || newest.Generation <= a.Generation() {
		return false
	}
	_, err := assignment.NextGeneration(a.Generation(), newest.Generation, j.now.Wall)
	return err == nil
}
