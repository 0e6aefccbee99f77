package backupdist

import (
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/backupdist/protocol"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// helloWithin bounds the time until a subscriber says hello.
const helloWithin = 5 * time.Second

type watchStream = grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]

type subscriberService struct {
	slicerv1.UnimplementedSubscriberServiceServer
	s *Server
}

func (svc subscriberService) Watch(stream watchStream) error {
	err := svc.s.watch(stream)
	svc.s.m.ended.WithLabelValues(status.Code(err).String()).Inc()
	return err
}

// watch serves one subscriber. Receiving and sending have goroutines of their
// own, so that the stream can be ended while they are stuck.
func (s *Server) watch(stream watchStream) error {
	if !s.enter() {
		return errClosing
	}
	defer s.wg.Done()
	c := &client{s: s, stream: stream, done: make(chan error, 2), acked: make(chan struct{}, 1), setUp: limiter.HandshakeOf(stream.Context())}
	defer c.setUp.Release()
	hello := make(chan *slicerv1.Hello, 1)
	ended := make(chan struct{})
	defer close(ended)
	s.wg.Go(func() { c.done <- c.receive(hello) })
	late := time.NewTimer(helloWithin)
	defer late.Stop()
	for {
		select {
		case h := <-hello:
			late.Stop()
			j, err := s.admit(c, h)
			if err != nil {
				return err
			}
			defer s.release(j)
			role := s.m.subs.WithLabelValues(protocol.RoleName(h.GetRole()))
			role.Inc()
			defer role.Dec()
			s.wg.Go(func() { c.done <- c.send(j, ended) })
		case <-late.C:
			return status.Errorf(codes.DeadlineExceeded, "no hello within %s", helloWithin)
		case err := <-c.done:
			return err
		case <-s.life.Done():
			return errClosing
		}
	}
}

func (s *Server) admit(c *client, h *slicerv1.Hello) (*job, error) {
	core, err := protocol.NewSubscriber(time.Now(), h)
	if err != nil {
		return nil, err
	}
	c.petition = s.petitionOf(c.stream.Context(), h)
	j, err := s.acquireFor(c.stream.Context(), h.GetJob(), c.petition)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.core = core
	c.mu.Unlock()
	j.notify((*protocol.Job).Needed)
	return j, nil
}

// client is one subscriber.
type client struct {
	s      *Server
	stream watchStream
	done   chan error // why the stream is to end
	acked  chan struct{}
	setUp  *limiter.Handshake // of its connection, nil once that is released; the sender's

	petition *petition // the sender's, once it has been admitted

	mu   sync.Mutex
	core *protocol.Subscriber // nil until it has been admitted
}

// receive takes what the subscriber says. Reports, and messages of a later version, are
// ignored.
func (c *client) receive(hello chan<- *slicerv1.Hello) error {
	for first := true; ; first = false {
		m, err := c.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case first != (m.GetHello() != nil):
			return status.Error(codes.InvalidArgument, "the first message, and no other, is a hello")
		case first:
			hello <- m.GetHello()
		case m.GetAck() != nil:
			c.ack(m.GetAck())
		}
	}
}

func (c *client) ack(a *slicerv1.Ack) {
	c.mu.Lock()
	if c.core != nil {
		c.core.Ack(a)
	}
	c.mu.Unlock()
	select {
	case c.acked <- struct{}{}:
	default:
	}
}

// next is what to send now, and when to ask again if that is nothing.
func (c *client) next(st state) (send protocol.Send, wake time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Next(time.Now(), st.State), c.core.Wake()
}

// send sends what is newest until the stream ends.
func (c *client) send(j *job, ended <-chan struct{}) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		st := j.now()
		if err := c.petition.review(j.name, st); err != nil {
			return err
		}
		send, wake := c.next(st)
		switch {
		case send.Hopeless:
			return j.why(st.State, c.petition)
		case send.Status != nil:
			if err := c.stream.Send(&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Status{Status: send.Status}}); err != nil {
				return err
			}
			continue
		case send.Quotas != nil:
			if err := c.stream.Send(&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Quotas{Quotas: send.Quotas}}); err != nil {
				return err
			}
			continue
		case send.Newest != nil:
			e, kind := &st.update.whole, "whole"
			switch {
			case send.Newest.Part() != "":
				e, kind = c.s.part(send.Base, send.Newest), "part"
			case send.Base != nil:
				e, kind = &st.update.delta, "delta"
			case send.Compressed:
				e, kind = &st.update.compressed, "compressed"
			}
			n, err := e.send(c.stream)
			if err != nil {
				return err
			}
			c.s.m.updates(kind, n)
			continue
		}
		if c.setUp != nil && st.Known { // it has been sent what there is for it
			c.setUp.Release()
			c.setUp = nil
		}
		timer.Reset(time.Until(wake))
		select {
		case <-st.next:
		case <-c.acked:
		case <-c.petition.changed:
		case <-timer.C:
		case <-ended:
			return nil
		}
	}
}
