package clerkgrpc

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// maxReplay is how many messages of a stream are kept until an answer arrives, to
// be sent again if the task refuses the stream; of a Proxy's at most maxReplayBytes, or one.
const maxReplay, maxReplayBytes = 8, 256 << 10

// stream gives a streaming RPC its route, and makes it one that can be opened again.
func (s *source) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c := &stream{source: s, open: open, desc: desc, cc: cc, method: method, opts: opts}
	if err := s.start(ctx, &c.routed, method, nil); err != nil {
		return nil, err
	}
	first, err := c.reopen()
	if err != nil {
		return nil, s.explain(targetJob(cc), &c.routed.route, err)
	}
	c.cs = first
	return c, nil
}

// stream is a stream that is opened again when a task refuses it before the first
// message has come from there and before more than maxReplay were sent. A task
// that refuses has looked at none of them; one that has lost the key has, so then the
// stream is opened again only if it may be carried out twice.
type stream struct {
	routed routed // its context
	source *source
	open   grpc.Streamer // with what follows
	desc   *grpc.StreamDesc
	cc     *grpc.ClientConn
	method string
	opts   []grpc.CallOption

	// sending is held while something is sent, and while the stream is replaced. It
	// comes before mu.
	sending sync.Mutex

	mu      sync.Mutex
	cs      grpc.ClientStream
	sent    []any
	first   [1]any // where sent begins, to spare an allocation
	bytes   int    // of sent, as far as they are frames
	closed  bool   // for sending
	settled bool   // it will not be replaced any more
	times   int
}

func (s *stream) reopen() (grpc.ClientStream, error) {
	return s.open(&s.routed, s.desc, s.cc, s.method, s.opts...)
}

func (s *stream) current() grpc.ClientStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cs
}

func (s *stream) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked()
}

func (s *stream) settleLocked() { s.settled, s.sent, s.first[0] = true, nil, nil }

// SendMsg is grpc.ClientStream's.
func (s *stream) SendMsg(m any) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	cs := s.cs
	if !s.settled && s.keepsLocked(m) {
		if s.sent == nil {
			s.sent = s.first[:0]
		}
		s.sent = append(s.sent, m)
	} else {
		s.settleLocked()
	}
	settled := s.settled
	s.mu.Unlock()
	err := cs.SendMsg(m)
	if errors.Is(err, io.EOF) && !settled {
		// It has ended, and RecvMsg says why, or sends this again.
		return nil
	}
	return err
}

// keepsLocked reports whether a message is kept.
func (s *stream) keepsLocked(m any) bool {
	if f, ok := m.(*frame); ok {
		s.bytes += len(f.data)
	}
	return len(s.sent) == 0 || len(s.sent) < maxReplay && s.bytes <= maxReplayBytes
}

// CloseSend is grpc.ClientStream's.
func (s *stream) CloseSend() error {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	cs := s.cs
	s.closed = true
	s.mu.Unlock()
	return cs.CloseSend()
}

// RecvMsg is grpc.ClientStream's.
func (s *stream) RecvMsg(m any) error {
	for {
		err := s.current().RecvMsg(m)
		if err == nil || errors.Is(err, io.EOF) {
			s.settle()
			return err
		}
		if replaced, fail := s.replace(err); !replaced {
			s.settle()
			return fail
		}
	}
}

// replace opens the stream again if it was refused, and sends what was sent.
func (s *stream) replace(failed error) (bool, error) {
	s.mu.Lock()
	settled, times := s.settled, s.times
	s.times++
	s.mu.Unlock()
	if settled {
		return false, failed
	}
	if again, err := s.source.again(&s.routed, s.cc, s.method, failed, times); !again {
		return false, err
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	settled, sent, closed := s.settled, s.sent, s.closed
	s.mu.Unlock()
	if settled { // by more messages than are kept
		return false, failed
	}
	cs, err := s.reopen()
	if err != nil {
		return false, err
	}
	for _, m := range sent {
		if err := cs.SendMsg(m); err != nil {
			break // RecvMsg says why
		}
	}
	if closed {
		_ = cs.CloseSend()
	}
	s.mu.Lock()
	s.cs = cs
	s.mu.Unlock()
	return true, nil
}

// Header is grpc.ClientStream's: that of the stream as it is now. It is empty if
// that was refused.
func (s *stream) Header() (metadata.MD, error) { return s.current().Header() }

// Trailer is grpc.ClientStream's.
func (s *stream) Trailer() metadata.MD { return s.current().Trailer() }

// Context is grpc.ClientStream's.
func (s *stream) Context() context.Context { return s.current().Context() }
