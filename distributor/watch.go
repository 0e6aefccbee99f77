package distributor

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// subscriberService is what clerks and slicelets call.
type subscriberService struct {
	slicerv1.UnimplementedSubscriberServiceServer
	d *Distributor
}

func (s subscriberService) Watch(stream grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]) error {
	err := s.d.watch(stream)
	s.d.metrics.ended.WithLabelValues(status.Code(err).String()).Inc()
	return err
}

func (d *Distributor) watch(stream grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]) error {
	if !d.enter() {
		return errClosing
	}
	defer d.wg.Done()
	in, err := d.hello(stream)
	if err != nil {
		return err
	}
	j, err := d.acquireFor(stream.Context(), in.Job)
	if err != nil {
		return err
	}
	defer d.release(j)
	s := &subscription{id: d.given.subscribers.Add(1), in: in, stream: stream, job: j, done: make(chan struct{}), peer: limiter.KeyOfContext(stream.Context()), setUp: limiter.HandshakeOf(stream.Context())}
	defer s.setUp.Release()
	if err := j.join(time.Now(), s); err != nil {
		return err
	}
	defer func() { j.leave(time.Now(), s.id) }()
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		s.receive()
	}()
	select {
	case <-s.done:
		return s.err
	case <-d.stop:
		return errClosing
	}
}

// hello waits for the first message.
func (d *Distributor) hello(stream grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]) (fanout.Hello, error) {
	m, err := firstOn(d, stream.Recv)
	if err != nil {
		return fanout.Hello{}, err
	}
	return fanout.CheckHello(m, time.Now())
}

// firstOn is the first message of a stream, waited for until it is late.
func firstOn[M any](d *Distributor, recv func() (M, error)) (m M, err error) {
	type first struct {
		m   M
		err error
	}
	came := make(chan first, 1)
	d.goRun(func() {
		m, err := recv()
		came <- first{m, err}
	})
	late := time.NewTimer(helloWithin)
	defer late.Stop()
	select {
	case f := <-came:
		return f.m, f.err
	case <-late.C:
		return m, status.Errorf(codes.DeadlineExceeded, "no hello within %s", helloWithin)
	case <-d.stop:
		return m, errClosing
	}
}

func (s subscriberService) Fetch(req *slicerv1.FetchRequest, stream grpc.ServerStreamingServer[slicerv1.WatchResponse]) error {
	d := s.d
	if !d.enter() {
		return errClosing
	}
	defer d.wg.Done()
	p, err := d.fetch(stream.Context(), req)
	if err != nil {
		return err
	}
	// The handler does not send itself, so that Close need not wait for a client
	// that does not read.
	sent := make(chan error, 1)
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		_, err := send(p, stream)
		sent <- err
	}()
	select {
	case err := <-sent:
		return err
	case <-d.stop:
		return errClosing
	}
}

func (d *Distributor) fetch(ctx context.Context, req *slicerv1.FetchRequest) (*prepared.Messages, error) {
	name, g := req.GetJob(), req.GetGeneration()
	if err := checkFetch(req, time.Now()); err != nil {
		return nil, err
	}
	j, err := d.acquireFor(ctx, name)
	if err != nil {
		return nil, err
	}
	defer d.release(j)
	patient := time.NewTimer(fanout.Patience)
	defer patient.Stop()
	for waited := false; ; {
		p, wait, err := j.lookFor(time.Now(), g, waited)
		if p != nil || err != nil {
			return p, err
		}
		select {
		case <-wait:
		case <-patient.C:
			waited = true
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-d.stop:
			return nil, errClosing
		}
	}
}
