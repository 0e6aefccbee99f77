package distsim

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Subscriber is a subscriber's stream.
type Subscriber struct {
	id     uint64
	in     fanout.Hello
	job    *job
	stream stream
	end    func(error)
	ended  bool
}

// Join begins a subscriber's stream with its first message. send carries a
// message to it; end is called, once, when the stream is to end, nil standing for
// an orderly end. The error is why it ends at once.
func (d *Distributor) Join(now time.Time, hello *slicerv1.WatchRequest, send func(*slicerv1.WatchResponse), end func(error)) (*Subscriber, error) {
	d.at(now)
	defer d.flush()
	in, err := fanout.CheckHello(hello, now)
	if err != nil {
		return nil, err
	}
	j := d.job(in.Job)
	j.refs++
	d.subscribers++
	s := &Subscriber{id: d.subscribers, in: in, job: j, stream: stream{send: send}, end: end}
	j.subs[s.id] = s
	if r, refused := j.step(fanout.Came{ID: s.id, Hello: in}).(fanout.Refuse); refused {
		j.release(s)
		return nil, r.Err
	}
	return s, nil
}

// FromSubscriber says what a subscriber has sent.
func (d *Distributor) FromSubscriber(now time.Time, s *Subscriber, m *slicerv1.WatchRequest) {
	d.at(now)
	switch e, err := s.in.Event(d.now, s.id, m); {
	case err != nil:
		s.finish(err)
	case e != nil:
		s.job.step(e)
	}
	d.flush()
}

// Left says that a subscriber's stream has ended, whichever side ended it.
func (d *Distributor) Left(now time.Time, s *Subscriber) {
	d.at(now)
	s.job.step(fanout.Left{ID: s.id})
	s.job.release(s)
	d.flush()
}

func (j *job) release(s *Subscriber) {
	delete(j.subs, s.id)
	if j.refs--; j.refs == 0 {
		j.idleSince, j.due = j.d.now, true
	}
}

func (s *Subscriber) finish(err error) {
	if s != nil && !s.ended {
		s.ended = true
		s.end(err)
	}
}

// sendAll sends until there is nothing more to send.
func (s *Subscriber) sendAll() {
	for {
		answer := s.job.step(fanout.Ready{ID: s.id})
		for c, ok := answer.(fanout.CutPart); ok; c, ok = answer.(fanout.CutPart) {
			answer = s.job.step(c.Cut())
		}
		out, ok := answer.(fanout.Send)
		if !ok {
			return
		}
		if err := out.Messages.Send(s.stream, nil); err != nil {
			panic(fmt.Errorf("to %s: %w", s.in.Name, err))
		}
	}
}

// stream takes messages as they are.
type stream struct {
	grpc.ServerStream
	send func(*slicerv1.WatchResponse)
}

func (stream) Local()                       {}
func (stream) Context() context.Context     { return context.Background() }
func (stream) SetHeader(metadata.MD) error  { return nil }
func (stream) SendHeader(metadata.MD) error { return nil }

func (s stream) SendMsg(m any) error {
	s.send(m.(*slicerv1.WatchResponse))
	return nil
}
