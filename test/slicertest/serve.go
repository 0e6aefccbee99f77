package slicertest

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// subscriberServer is the environment as a Distributor.
type subscriberServer struct {
	slicerv1.UnimplementedSubscriberServiceServer
	env *Env
}

// stream is a subscriber's. It is guarded by Env.mu.
type stream struct {
	job    *jobState
	name   string // its task's, or its client id
	role   slicerv1.Role
	index  uint32  // a clerk's
	member *member // a slicelet's
	wake   chan struct{}

	has      assignment.Generation  // as the subscriber says
	inFlight *assignment.Assignment // sent, and not acknowledged yet
	whole    bool                   // it asks for a whole assignment
	said     *slicerv1.Status
}

// counts reports whether anything waits for the subscriber.
func (s *stream) counts() bool { return s.role != slicerv1.Role_ROLE_OBSERVER }

// Watch serves a stream.
func (srv subscriberServer) Watch(ws grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]) error {
	first, err := ws.Recv()
	if err != nil {
		return err
	}
	s, err := srv.env.enter(first.GetHello())
	if err != nil {
		return err
	}
	defer srv.env.leave(s)
	var sender sync.WaitGroup
	defer sender.Wait()
	ctx, cancel := context.WithCancel(ws.Context())
	defer cancel()
	sender.Go(func() { srv.env.send(ctx, s, ws) })
	for {
		m, err := ws.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		srv.env.take(s, m)
	}
}

// Fetch serves an assignment, as long as it is remembered.
func (srv subscriberServer) Fetch(r *slicerv1.FetchRequest, ws grpc.ServerStreamingServer[slicerv1.WatchResponse]) error {
	a := srv.env.Assignment(r.GetJob())
	if g := assignment.Generation(r.GetGeneration()); g != 0 && a != nil {
		srv.env.mu.Lock()
		a = srv.env.jobs[r.GetJob()].at(g)
		srv.env.mu.Unlock()
	}
	if a == nil {
		return status.Errorf(codes.NotFound, "job %q has no generation %d here", r.GetJob(), r.GetGeneration())
	}
	frame, err := wire.WholeFrame(a)
	if err != nil {
		return err
	}
	for m := range frame.Responses() {
		if err := ws.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// enter begins a stream.
func (e *Env) enter(h *slicerv1.Hello) (*stream, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h == nil {
		return nil, status.Error(codes.InvalidArgument, "the first message is no hello")
	}
	j, err := e.jobLocked(h.GetJob())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	s := &stream{job: j, name: h.GetClientId(), role: h.GetRole(), wake: make(chan struct{}, 1)}
	if j.newest != nil && h.GetStoreId() == j.newest.StoreID() {
		s.has = assignment.Generation(h.GetGeneration())
	}
	switch s.role {
	case slicerv1.Role_ROLE_CLERK:
		s.index = j.freeIndex(h.ClientIndex)
	case slicerv1.Role_ROLE_SLICELET:
		t, err := wire.TaskFromProto(h.GetTask())
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		state, err := wire.StateFromProto(h.GetReport().GetState())
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		s.name = t.Name
		if err := j.join(s, t, state); err != nil {
			return nil, status.Error(codes.AlreadyExists, err.Error())
		}
	}
	j.streams = append(j.streams, s)
	j.notify()
	return s, nil
}

func (e *Env) leave(s *stream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.job.leave(s)
}

// take takes what a subscriber says after its hello.
func (e *Env) take(s *stream, m *slicerv1.WatchRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := m.GetAck(); a != nil {
		s.has, s.whole, s.inFlight = assignment.Generation(a.GetGeneration()), a.GetRefusal() != "", nil
		s.job.notify()
	}
	if r := m.GetReport(); r != nil {
		if state, err := wire.StateFromProto(r.GetState()); err == nil {
			s.job.report(s, state)
		}
	}
}

// send tells a subscriber what there is, until ctx ends.
func (e *Env) send(ctx context.Context, s *stream, ws grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]) {
	for {
		for _, m := range e.next(s) {
			if ws.Send(m) != nil {
				return // the receiving side learns why
			}
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// next is what to send to a subscriber now.
func (e *Env) next(s *stream) (ms []*slicerv1.WatchResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j := s.job
	if said := j.status(s); !proto.Equal(said, s.said) {
		s.said = said
		ms = append(ms, &slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Status{Status: said}})
	}
	if a := j.newest; a == nil || s.inFlight != nil || s.has >= a.Generation() && !s.whole || e.held[s.name] > 0 {
		return ms
	}
	frame, err := j.frame(s)
	if err != nil { // it was valid when it was made
		return ms
	}
	s.inFlight = j.newest
	for m := range frame.Responses() {
		ms = append(ms, m)
	}
	return ms
}

// frame is the newest assignment as a subscriber can read it.
func (j *jobState) frame(s *stream) (*wire.Frame, error) {
	if base := j.at(s.has); base != nil && !s.whole {
		return wire.DeltaFrame(base, j.newest)
	}
	return wire.WholeFrame(j.newest)
}

// status is what a subscriber is told besides assignments.
func (j *jobState) status(s *stream) *slicerv1.Status {
	m := &slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, ConvergedGeneration: int64(j.converged())}
	if j.consistent {
		m.Mode = slicerv1.Mode_MODE_CONSISTENT
	}
	for _, o := range j.streams {
		if o.counts() && o.has < j.generation() && len(m.Stragglers) < wire.MaxStragglers {
			m.Stragglers = append(m.Stragglers, o.name)
		}
	}
	if s.role == slicerv1.Role_ROLE_CLERK {
		m.ClientIndex = new(s.index)
	}
	return m
}
