package distributor

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/handlers"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// subscription is one subscriber's stream. It costs the handler's goroutine and one that
// receives; a third one sends, and lives only while there is something to send, so that
// ten thousand idle subscribers are cheap, and a stuck one holds up no other and can
// still be told to go.
type subscription struct {
	id     uint64
	in     fanout.Hello
	stream grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]
	job    *job

	finish   sync.Once
	done     chan struct{}      // closed when the stream is to end
	err      error              // why, to be read after done
	petition *petition          // nil for a Distributor of the second tier, which may have what it asks for
	leave    func()             // takes a task off those that are counted
	setUp    *limiter.Handshake // of its connection; nil if that was not limited, or does not count any more; guarded by the job's lock
}

// end ends the stream with err, the first that is given.
func (s *subscription) end(err error) {
	s.finish.Do(func() {
		s.err = err
		close(s.done)
	})
}

// isServed says that the next connection may be set up: this one has been sent what
// there was for it.
func (s *subscription) isServed() {
	s.setUp.Release()
	s.setUp = nil
}

// receive takes what the subscriber says until its stream ends.
func (s *subscription) receive() {
	for {
		m, err := s.stream.Recv()
		if err == nil {
			err = s.handle(m)
		}
		if err != nil {
			s.end(handlers.EndOf(err))
			return
		}
	}
}

func (s *subscription) handle(m *slicerv1.WatchRequest) error {
	now := time.Now()
	e, err := s.in.Event(now, s.id, m)
	if err == nil && e != nil {
		s.job.step(now, e)
	}
	return err
}

// cuts holds a token for each subscriber whose part is being cut, of no more at once than there
// are processors: all slicelets of a job want theirs at once, and other goroutines are to have
// their turn meanwhile.
type cuts chan struct{}

func (c cuts) cut(p fanout.CutPart) fanout.PartCut {
	c <- struct{}{}
	defer func() { <-c }()
	return p.Cut()
}

// send sends until there is nothing more to send.
func (s *subscription) send() {
	for {
		answer := s.job.step(time.Now(), fanout.Ready{ID: s.id})
		for c, ok := answer.(fanout.CutPart); ok; c, ok = answer.(fanout.CutPart) {
			answer = s.job.step(time.Now(), s.job.d.cuts.cut(c))
		}
		out, ok := answer.(fanout.Send)
		if !ok {
			return
		}
		size, err := send(out.Messages, s.stream)
		switch {
		case err == nil:
			if out.Kind != "" {
				s.job.m.updates(out.Kind, size)
			}
		case errors.Is(err, prepared.ErrBuild) && out.Kind == fanout.KindDelta:
			s.job.log.Error("a delta does not encode, sending the whole", "error", err)
			s.job.step(time.Now(), fanout.DeltaFailed{ID: s.id})
		case errors.Is(err, prepared.ErrBuild):
			s.job.log.Error("an assignment does not encode", "error", err)
			s.end(status.Errorf(codes.Internal, "job %q: the assignment does not encode", s.job.name))
			return
		default:
			s.end(err)
			return
		}
	}
}
