package backupdist

import (
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// helloWithin bounds the time until a subscriber says hello.
	helloWithin = 5 * time.Second
	// patience is how long a subscriber waits for a job's first read.
	patience = 3 * time.Second
	// repeatEvery is the longest silence on a stream.
	repeatEvery = 5 * time.Second
	// maxRefusals is how often one assignment is sent to a subscriber that will
	// not have it.
	maxRefusals = 3
)

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
	c := &client{s: s, stream: stream, done: make(chan error, 2), acked: make(chan struct{}, 1)}
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
			role := s.m.subs.WithLabelValues(roleName(h.GetRole()))
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
	if err := checkName(h.GetJob(), h.GetGeneration()); err != nil {
		return nil, err
	}
	if roleName(h.GetRole()) == "" {
		return nil, invalid(&assignment.FieldError{Field: "role", Value: int32(h.GetRole()), Allowed: "1 (clerk), 2 (slicelet) or 3 (observer)"})
	}
	c.held = held{assignment.Generation(h.GetGeneration()), h.GetStoreId(), h.GetChecksum()}
	j, err := s.acquire(h.GetJob())
	if err == nil {
		j.needed()
	}
	return j, err
}

func roleName(r slicerv1.Role) string {
	return [...]string{"", "clerk", "slicelet", "observer", ""}[min(max(r, 0), 4)]
}

func checkName(job string, g int64) error {
	if err := assignment.ValidateJobName(job); err != nil {
		return invalid(err)
	}
	if g < 0 {
		return invalid(&assignment.FieldError{Field: "generation", Value: g, Allowed: "0 or above"})
	}
	return nil
}

func invalid(err error) error { return status.Error(codes.InvalidArgument, err.Error()) }

// client is one subscriber.
type client struct {
	s      *Server
	stream watchStream
	done   chan error // why the stream is to end
	acked  chan struct{}

	// The sender's: the status and the update that were said last.
	said *slicerv1.Status
	last *update

	mu       sync.Mutex
	held     held
	flight   held // sent and not acknowledged, if its gen is not 0
	refusals int  // of the newest, in a row
}

// held is what a subscriber has.
type held struct {
	gen        assignment.Generation
	store, sum uint64
}

func heldOf(a *assignment.Assignment) held { return held{a.Generation(), a.StoreID(), a.Checksum()} }

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
	g := assignment.Generation(a.GetGeneration())
	switch {
	case a.GetRefusal() != "":
		c.refusals++
		c.flight, c.held.sum = held{}, 0 // the whole comes next
	case g == c.flight.gen:
		c.held, c.flight, c.refusals = c.flight, held{}, 0
	case g > c.held.gen && g > c.flight.gen:
		// It has got something newer elsewhere.
		c.held, c.flight = held{gen: g, store: c.held.store}, held{}
	}
	c.mu.Unlock()
	select {
	case c.acked <- struct{}{}:
	default:
	}
}

// next is what the subscriber lacks, nil if nothing, and how it is called.
func (c *client) next(u *update, newest held) (e *encoding, kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flight.gen != 0 || c.held == newest || c.held.store == newest.store && c.held.gen > newest.gen || c.refusals >= maxRefusals {
		return nil, ""
	}
	c.flight = newest
	if u.base != nil && c.held == heldOf(u.base) {
		return &u.delta, "delta"
	}
	return &u.whole, "whole"
}

// turn is what to send now: a status or an assignment, or neither. waited says that
// the job's first reading has been waited for in vain; the error ends the stream.
func (c *client) turn(j *job, st state, waited bool) (say *slicerv1.Status, e *encoding, kind string, err error) {
	switch {
	case st.missing, !st.known && waited:
		return nil, nil, "", j.why(st)
	case st.known && (c.said == nil || c.said.LoadMetric != st.config.LoadMetric || c.said.Mode != slicerv1.Mode(st.config.Mode)):
		c.said = statusMessage(st.config)
		return c.said, nil, "", nil
	case st.update != nil:
		if c.last != st.update {
			c.last = st.update
			c.mu.Lock()
			c.refusals = 0
			c.mu.Unlock()
		}
		e, kind = c.next(st.update, heldOf(st.update.a))
	}
	return nil, e, kind, nil
}

// send sends what is newest until the stream ends: one assignment at a time, the
// next when that one has been acknowledged.
func (c *client) send(j *job, ended <-chan struct{}) error {
	patient := time.NewTimer(patience)
	defer patient.Stop()
	repeat := time.NewTimer(repeatEvery)
	defer repeat.Stop()
	for waited := false; ; {
		st := j.now()
		say, e, kind, err := c.turn(j, st, waited)
		switch {
		case err != nil:
			return err
		case say != nil:
			if err := c.say(say, repeat); err != nil {
				return err
			}
			continue
		case e != nil:
			n, err := e.send(c.stream)
			if err != nil {
				return err
			}
			c.s.m.updates(kind, n)
			continue
		}
		select {
		case <-st.next:
		case <-c.acked:
		case <-patient.C:
			waited = true
		case <-repeat.C:
			c.said = nil // to be said again
		case <-ended:
			return nil
		}
	}
}

func (c *client) say(m *slicerv1.Status, repeat *time.Timer) error {
	repeat.Reset(repeatEvery)
	return c.stream.Send(&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Status{Status: m}})
}

func statusMessage(c assignment.JobConfig) *slicerv1.Status {
	return &slicerv1.Status{
		LoadMetric: c.LoadMetric, Mode: slicerv1.Mode(c.Mode), TakesReports: false, RepeatMs: repeatEvery.Milliseconds(),
	}
}
