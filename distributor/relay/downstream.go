package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/handlers"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// downstream is the stream on which a Distributor of the second tier asks for
// assignments. To each job that it wants it is one more subscriber, an observer,
// since its own subscribers are counted by the assigner; it gets the same encodings
// as all others, in the messages in which an assigner would send them.
type downstream struct {
	s      *Service
	id     string
	stream relayStream
	wake   chan struct{} // holds a token when preferences may have changed
	end    chan error    // why the stream ends; the first counts
	done   chan struct{} // closed when it has ended

	sending sync.Mutex // of one message at a time
	seeking atomic.Bool

	wants map[string]*want // the receiver's
}

// serve answers on a stream until it ends. Of two streams of one Distributor the newer
// counts.
func (s *Service) serve(stream relayStream, as *standing, h *slicerv1.DistributorHello) error {
	b := &downstream{
		s: s, id: h.GetDistributorId(), stream: stream, wake: make(chan struct{}, 1),
		end: make(chan error, 1), done: make(chan struct{}), wants: make(map[string]*want),
	}
	b.notify()
	s.enter(b)
	s.cfg.Logger.Info("distributor of the second tier attached", "of", b.id, "zone", assignment.Clip(h.GetZone(), maxText))
	defer s.leave(b)
	s.handlers.Go(b.tell)
	s.handlers.Go(b.receive)
	for {
		select {
		case err := <-b.end:
			return err
		case <-as.changed:
			if err := as.check(); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.handlers.Done():
			return handlers.ErrClosing
		}
	}
}

func (s *Service) enter(b *downstream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.downstreams[b.id]; old != nil {
		old.finish(status.Error(codes.Aborted, "a newer stream of this distributor has taken the place of this one"))
	}
	s.downstreams[b.id] = b
	s.cfg.Attached(len(s.downstreams))
}

func (s *Service) leave(b *downstream) {
	close(b.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.downstreams[b.id] == b {
		delete(s.downstreams, b.id)
		s.cfg.Attached(len(s.downstreams))
	}
	s.cfg.Logger.Info("distributor of the second tier has gone", "of", b.id)
}

func (b *downstream) finish(err error) {
	select {
	case b.end <- err:
	default:
	}
}

// notify wakes tell: preferences may have changed.
func (b *downstream) notify() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// put sends a message. One that cannot be sent ends the stream.
func (b *downstream) put(m *slicerv1.AttachResponse) bool {
	b.sending.Lock()
	defer b.sending.Unlock()
	err := b.stream.Send(m)
	if err != nil {
		b.finish(err)
	}
	return err == nil
}

// tell sends the hello, and then which assigners are preferred whenever that has changed.
func (b *downstream) tell() {
	hello := &slicerv1.AssignerHello{AssignerId: b.s.cfg.ID, Zone: b.s.cfg.Zone}
	ok := b.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Hello{Hello: hello}})
	told := make(map[uint64]*slicerv1.Preference) // by store
	for ok {
		select {
		case <-b.wake:
		case <-b.done:
			return
		}
		for _, p := range b.s.cfg.Source.Preferences() {
			if ok && !proto.Equal(told[p.StoreId], p) {
				told[p.StoreId] = p
				ok = b.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Preference{Preference: p}})
			}
		}
	}
}

// receive takes what the Distributor of the second tier says.
func (b *downstream) receive() {
	for {
		m, err := b.stream.Recv()
		if err == nil {
			switch m := m.GetMessage().(type) {
			case *slicerv1.AttachRequest_Want:
				err = b.want(m.Want)
			case *slicerv1.AttachRequest_WantBase:
				err = b.wantBase(m.WantBase)
			}
		}
		if err != nil {
			b.finish(handlers.EndOf(err))
			return
		}
	}
}

func (b *downstream) want(m *slicerv1.Want) error {
	name := m.GetJob()
	w := b.wants[name]
	if m.GetStop() {
		if w != nil {
			close(w.stopped)
			delete(b.wants, name)
		}
		return nil
	}
	now := time.Now()
	if err := checkWant(m, now); err != nil {
		return err
	}
	if w == nil {
		if len(b.wants) >= maxJobs {
			return status.Errorf(codes.ResourceExhausted, "job %q: %d jobs are wanted, no more are allowed", name, maxJobs)
		}
		w = &want{b: b, job: name, stopped: make(chan struct{}), said: m}
		b.wants[name] = w
		b.s.handlers.Go(w.run)
		return nil
	}
	w.anew(now, m)
	return nil
}

func checkWant(m *slicerv1.Want, now time.Time) error {
	err := assignment.ValidateJobName(m.GetJob())
	for _, g := range []int64{m.GetGeneration(), m.GetNewestReported()} {
		if err == nil {
			err = fanout.CheckGeneration(assignment.Generation(g), now)
		}
	}
	if err != nil {
		return fanout.Invalid("want", err)
	}
	return nil
}

// wantBase looks for an older assignment, here or with the assigner, as for any
// subscriber that fetches one; one at a time. Another that is asked for meanwhile is
// answered with none.
func (b *downstream) wantBase(m *slicerv1.WantBase) error {
	req := &slicerv1.FetchRequest{Job: m.GetJob(), Generation: m.GetGeneration(), Compressed: m.GetCompressed()}
	if err := fanout.CheckFetch(req, time.Now()); err != nil {
		return err
	}
	say := func(m *slicerv1.JobAssignment) {
		m.Job = req.Job
		b.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Base{Base: m}})
	}
	if b.seeking.Swap(true) {
		say(&slicerv1.JobAssignment{})
		return nil
	}
	b.s.handlers.Go(func() {
		defer b.seeking.Store(false)
		ctx, cancel := context.WithTimeout(b.stream.Context(), fanout.Patience)
		defer cancel()
		if b.s.cfg.Source.Fetch(ctx, req, func(m *slicerv1.WatchResponse) { say(piece(m)) }) != nil {
			say(&slicerv1.JobAssignment{})
		}
	})
	return nil
}

// piece is part of an assignment as Distributors get it.
func piece(m *slicerv1.WatchResponse) *slicerv1.JobAssignment {
	if t := m.GetTrailer(); t != nil {
		return &slicerv1.JobAssignment{Piece: &slicerv1.JobAssignment_Trailer{Trailer: t}}
	}
	return &slicerv1.JobAssignment{Piece: &slicerv1.JobAssignment_Chunk{Chunk: m.GetChunk()}}
}
