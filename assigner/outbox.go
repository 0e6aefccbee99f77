package assigner

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// What a session is to send is kept as marks, never as messages: when its turn
// comes whatever is newest is sent. So a slow Distributor costs one message.

// maxRefusals bounds the refusals that wait; those left out come again with the
// task's next report.
const maxRefusals = 1024

// preference has the view of a store sent, if it is another one than before.
func (s *session) preference(store int, p *slicerv1.Preference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.prefs) <= store {
		s.prefs = append(s.prefs, nil)
		s.told = append(s.told, nil)
	}
	if proto.Equal(s.told[store], p) {
		s.prefs[store] = nil
		return
	}
	s.prefs[store] = p
	poke(s.kick)
}

// hear has the Distributor told that it is heard.
func (s *session) hear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hears = true
	poke(s.kick)
}

// heard is the same for everybody.
var heard = &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Heard{Heard: &slicerv1.Heard{}}}

// sayHeard tells the Distributor that it is heard, if it is to be told.
func (s *session) sayHeard() (said bool, err error) {
	s.mu.Lock()
	said, s.hears = s.hears, false
	s.mu.Unlock()
	if said {
		err = s.put(heard)
	}
	return said, err
}

// refuse has the stream of a task ended.
func (s *session) refuse(job string, e membership.Event) {
	code := codes.AlreadyExists
	if e.Full {
		code = codes.ResourceExhausted
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.refusals) >= maxRefusals {
		return
	}
	s.refusals = append(s.refusals, &slicerv1.RefuseTask{
		Job: job, Task: e.Task, Incarnation: e.Incarnation, Code: uint32(code), Message: e.Reason,
	})
	poke(s.kick)
}

// assignment has the job's newest assignment sent if the Distributor wants it.
func (s *session) assignment(r *runner) { s.mark(r, true, false) }

// status has the job's status sent.
func (s *session) status(r *runner) { s.mark(r, false, true) }

func (s *session) mark(r *runner, assignment, status bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.jobs[r.name]; in != nil {
		s.enqueue(in, assignment, status)
	}
}

// enqueue has an interest's turn come. s.mu is held.
func (s *session) enqueue(in *interest, assignment, status bool) {
	in.assignment = in.assignment || assignment
	in.status = in.status || status
	s.enqueueLocked(in)
}

func (s *session) enqueueLocked(in *interest) {
	if !in.queued {
		in.queued = true
		s.queue = append(s.queue, in)
	}
	poke(s.kick)
}

// send sends until the stream ends.
func (s *session) send(ctx context.Context) error {
	for {
		select {
		case <-s.kick:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !s.live() {
			continue // not before the hello
		}
		if err := s.sendAll(); err != nil {
			return err
		}
	}
}

// sendAll sends what there is to send now.
func (s *session) sendAll() error {
	if !s.greeted {
		s.greeted = true
		hello := &slicerv1.AssignerHello{AssignerId: s.a.cfg.ID, Zone: s.a.cfg.Zone, SaysHeard: true}
		if err := s.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Hello{Hello: hello}}); err != nil {
			return err
		}
	}
	for {
		if more, err := s.sendNext(); err != nil || !more {
			return err
		}
	}
}

func (s *session) put(m *slicerv1.AttachResponse) error {
	s.sending.Store(int64(s.a.now().Mono) + 1)
	defer s.sending.Store(0)
	return s.out.Send(m)
}

// sendNext sends what is due next: that the Distributor is heard, who is preferred,
// then refusals, then about the jobs in turn.
func (s *session) sendNext() (more bool, err error) {
	if said, err := s.sayHeard(); said || err != nil {
		return err == nil, err
	}
	s.mu.Lock()
	for i, p := range s.prefs {
		if p != nil {
			s.prefs[i], s.told[i] = nil, p
			s.mu.Unlock()
			return true, s.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Preference{Preference: p}})
		}
	}
	if len(s.refusals) > 0 {
		r := s.refusals[0]
		s.refusals = s.refusals[1:]
		s.mu.Unlock()
		return true, s.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_RefuseTask{RefuseTask: r}})
	}
	if len(s.queue) == 0 {
		s.refusals = nil
		s.mu.Unlock()
		return false, nil
	}
	in := s.queue[0]
	if len(s.queue) == 1 {
		s.queue = s.queue[:0] // its room is for the next one
	} else {
		s.queue = s.queue[1:]
	}
	in.queued = false
	status, assignment, indexes, base := in.status, in.assignment && in.wants, in.indexes, in.base
	in.status, in.assignment, in.indexes, in.base = false, false, false, nil
	held, newest := in.held, in.newest
	s.mu.Unlock()
	if status {
		if err := s.sendStatus(in); err != nil {
			return false, err
		}
	}
	if indexes {
		if err := s.sendIndexes(in); err != nil {
			return false, err
		}
	}
	if base != nil {
		if err := s.sendBase(in, base.a); err != nil {
			return false, err
		}
	}
	if assignment {
		a := in.runner.frames.head()
		if a == nil || s.waitsFor(newest, a) || held.store == a.StoreID() && held.generation > a.Generation() || held == markOf(a) {
			return true, nil // nothing that it lacks, or not yet
		}
		return true, s.sendAssignment(in, held)
	}
	return true, nil
}

// waitsFor reports whether a is not what a slicelet of the Distributor holds already and
// the job's next generation will be newer than.
func (s *session) waitsFor(newest generate.Held, a *assignment.Assignment) bool {
	if newest.Store != a.StoreID() || newest.Generation <= a.Generation() {
		return false
	}
	_, err := assignment.NextGeneration(a.Generation(), newest.Generation, s.a.now().Wall)
	return err == nil
}

func (s *session) sendStatus(in *interest) error {
	in.runner.mu.Lock()
	st := in.runner.status
	in.runner.mu.Unlock()
	if st == nil {
		return nil // it follows when the store has answered
	}
	return s.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Status{Status: st}})
}

// sendAssignment sends the newest assignment to a Distributor that holds another.
func (s *session) sendAssignment(in *interest, held mark) error {
	a := in.runner.frames.head()
	if a == nil {
		return nil
	}
	f, ok, err := in.runner.frames.frame(a, held)
	if err != nil {
		s.a.log.Error("assignment does not encode", "job", in.job, "generation", int64(a.Generation()), "error", err)
		return nil
	}
	if !ok {
		s.assignment(in.runner) // superseded meanwhile
		return nil
	}
	s.mu.Lock()
	// A Want that comes from now on is about what is being sent, or asks anew.
	if in.held == held {
		in.held = markOf(a)
	}
	s.mu.Unlock()
	for p := range f.Pieces(in.job) {
		if p.GetTrailer() != nil {
			p.AgeUs = in.runner.frames.age(s.a.now().Mono, a).Microseconds()
		}
		if err := s.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Assignment{Assignment: p}}); err != nil {
			return err
		}
	}
	s.a.metrics.sent(in.job, f)
	return nil
}
