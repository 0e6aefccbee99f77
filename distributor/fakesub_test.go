package distributor

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// fakeSub is a raw subscriber: it applies, checks and acknowledges what it gets.
type fakeSub struct {
	t      testing.TB
	stream slicerv1.SubscriberService_WatchClient
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	silent   bool // does not acknowledge
	refuse   int  // how many assignments it refuses
	parts    bool // it reads parts
	a        *assignment.Assignment
	got      []*slicerv1.Trailer
	status   *slicerv1.Status
	statuses int
	err      error
}

// subscribe starts a subscriber that holds base, which may be nil, and is as it is made
// before it hears anything.
func subscribe(t testing.TB, cc *grpc.ClientConn, h *slicerv1.Hello, base *assignment.Assignment, as ...func(*fakeSub)) *fakeSub {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeSub{t: t, stream: stream, cancel: cancel, done: make(chan struct{}), a: base}
	for _, f := range as {
		f(s)
	}
	s.send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}})
	go s.run()
	t.Cleanup(s.close)
	return s
}

func (s *fakeSub) close() {
	s.cancel()
	<-s.done
}

func (s *fakeSub) send(m *slicerv1.WatchRequest) { s.stream.Send(m) }

func (s *fakeSub) report(r *slicerv1.Report) {
	s.send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Report{Report: r}})
}

func (s *fakeSub) ack(g assignment.Generation, refusal string) {
	s.send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: int64(g), Refusal: refusal}}})
}

func (s *fakeSub) run() {
	defer close(s.done)
	asm := wire.Assembler{Parts: s.parts}
	for {
		m, err := s.stream.Recv()
		s.mu.Lock()
		switch {
		case err != nil:
			s.err = err
			s.mu.Unlock()
			return
		case m.GetChunk() != nil:
			if err := asm.Add(m.GetChunk()); err != nil {
				s.t.Error(err)
			}
		case m.GetTrailer() != nil:
			s.trailer(&asm, m.GetTrailer())
		case m.GetStatus() != nil:
			s.status = m.GetStatus()
			s.statuses++
		}
		s.mu.Unlock()
	}
}

func (s *fakeSub) trailer(asm *wire.Assembler, t *slicerv1.Trailer) {
	s.got = append(s.got, t)
	refusal := ""
	if s.refuse > 0 {
		s.refuse--
		refusal = "told to"
	}
	a, err := asm.Finish(t, s.a)
	switch {
	case err != nil:
		s.t.Errorf("assignment refused: %v", err)
		refusal = err.Error()
	case refusal != "":
	case s.a != nil && s.a.StoreID() == a.StoreID() && a.Generation() < s.a.Generation():
		s.t.Errorf("sent back from generation %d to %d", s.a.Generation(), a.Generation())
	default:
		s.a = a
	}
	if !s.silent {
		s.ack(assignment.Generation(t.Generation), refusal)
	}
}

// holds is what the subscriber has after everything has settled.
func (s *fakeSub) holds() *assignment.Assignment {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.a
}

// kinds says how the assignments came: "whole", "delta".
func (s *fakeSub) kinds() (kinds []string) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.got {
		if t.Base == 0 {
			kinds = append(kinds, fanout.KindWhole)
		} else {
			kinds = append(kinds, fanout.KindDelta)
		}
	}
	return kinds
}

func (s *fakeSub) lastStatus() *slicerv1.Status {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// ended is the code that the stream has ended with, or OK if it has not.
func (s *fakeSub) ended() codes.Code {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return status.Code(s.err)
}
