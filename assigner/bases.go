package assigner

import (
	"context"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// baseAnswer answers a WantBase; a is nil when it is not to be had.
type baseAnswer struct{ a *assignment.Assignment }

// wantBase looks for an older assignment: here, failing that in the job's store,
// which keeps more of them. Without a checksum any of that generation in the store
// will do. One is read at a time; who asks for more meanwhile is
// told that there is none, and sends its subscribers the whole.
func (s *session) wantBase(w *slicerv1.WantBase) {
	in := s.interestIn(w.GetJob())
	if in == nil {
		return
	}
	held := mark{assignment.Generation(w.GetGeneration()), w.GetStoreId(), w.GetChecksum()}
	a := in.runner.frames.base(held)
	home := in.runner.whose()
	if a != nil || home == nil || home.backend.ID() != held.store {
		s.answerBase(in, a)
		return
	}
	if _, driven := home.backend.(onlyID); driven {
		s.answerBase(in, nil)
		return
	}
	s.mu.Lock()
	busy := s.reading
	s.reading = true
	s.mu.Unlock()
	if busy {
		s.answerBase(in, nil)
		return
	}
	s.a.goRun(func() {
		ctx, cancel := context.WithTimeout(s.a.ctx, readWithin)
		defer cancel()
		a, err := home.backend.ReadGeneration(ctx, in.job, held.generation)
		if err != nil || !held.fits(a) {
			s.a.log.Debug("a base cannot be had", "job", in.job, "distributor", s.name, "generation", int64(held.generation), "error", err)
			a = nil
		}
		s.mu.Lock()
		s.reading = false
		s.mu.Unlock()
		s.answerBase(in, a)
	})
}

// fits says whether an assignment is the one; without a checksum by its number alone.
func (m mark) fits(a *assignment.Assignment) bool {
	got := markOf(a)
	return got == m || m.sum == 0 && got.generation == m.generation && got.store == m.store
}

func (s *session) answerBase(in *interest, a *assignment.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left || s.jobs[in.job] != in {
		return
	}
	in.base = &baseAnswer{a}
	s.enqueueLocked(in)
}

func (s *session) sendBase(in *interest, a *assignment.Assignment) error {
	say := func(m *slicerv1.JobAssignment) error {
		return s.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Base{Base: m}})
	}
	none := &slicerv1.JobAssignment{Job: in.job}
	if a == nil {
		return say(none)
	}
	f, err := wire.WholeFrame(a)
	if err != nil {
		s.a.log.Error("a base does not encode", "job", in.job, "generation", int64(a.Generation()), "error", err)
		return say(none)
	}
	for p := range f.Pieces(in.job) {
		if err := say(p); err != nil {
			return err
		}
	}
	return nil
}
