package distributor

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/assignment/trace"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/handlers"
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

func (d *Distributor) watch(stream grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]) (err error) {
	_, setUp := trace.Start(stream.Context(), d.cfg.Tracer, "slicer.watch")
	defer func() { setUp.End(err) }()
	if err := d.handlers.Enter(); err != nil {
		return err
	}
	defer d.handlers.Leave()
	in, err := d.hello(stream)
	if err != nil {
		return err
	}
	setUp.Set(slog.String("job", in.Job), slog.String("subscriber", in.Name))
	ctx := stream.Context()
	p := petitionOf(ctx, d.cfg.Rights, in)
	if err := d.tasks.room(p, in.Job); err != nil {
		limiter.Refuse(ctx)
		return err
	}
	j, err := d.acquireFor(ctx, in.Job, p)
	if err != nil {
		return err
	}
	defer d.release(j)
	defer func() {
		if status.Code(err) == codes.ResourceExhausted {
			limiter.Refuse(ctx)
		}
	}()
	s := &subscription{id: d.given.subscribers.Add(1), in: in, stream: stream, job: j, done: make(chan struct{}), petition: p, setUp: limiter.HandshakeOf(ctx)}
	defer s.setUp.Release()
	if err := j.join(ctx, s); err != nil {
		return err
	}
	defer func() { j.leave(time.Now(), s.id) }()
	setUp.End(nil)
	d.handlers.Go(s.receive)
	select {
	case <-s.done:
		return s.err
	case <-d.handlers.Done():
		return handlers.ErrClosing
	}
}

// hello waits for the first message.
func (d *Distributor) hello(stream grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]) (fanout.Hello, error) {
	m, err := handlers.First(d.handlers, stream.Recv, helloWithin, "hello")
	if err != nil {
		return fanout.Hello{}, err
	}
	return fanout.CheckHello(m, time.Now())
}

func (s subscriberService) Fetch(req *slicerv1.FetchRequest, stream grpc.ServerStreamingServer[slicerv1.WatchResponse]) error {
	d := s.d
	if err := d.handlers.Enter(); err != nil {
		return err
	}
	defer d.handlers.Leave()
	p, err := d.fetch(stream.Context(), req, watches(stream.Context(), d.cfg.Rights))
	if err != nil {
		return err
	}
	// The handler does not send itself, so that Close need not wait for a client
	// that does not read.
	sent := make(chan error, 1)
	d.handlers.Go(func() {
		_, err := send(p, stream)
		sent <- err
	})
	select {
	case err := <-sent:
		return err
	case <-d.handlers.Done():
		return handlers.ErrClosing
	}
}

func (d *Distributor) fetch(ctx context.Context, req *slicerv1.FetchRequest, by *petition) (*prepared.Messages, error) {
	name := req.GetJob()
	if err := fanout.CheckFetch(req, time.Now()); err != nil {
		return nil, err
	}
	j, err := d.acquireFor(ctx, name, by)
	if err != nil {
		return nil, err
	}
	defer d.release(j)
	if err := j.admit(ctx, by, nil); err != nil {
		return nil, err
	}
	patient := time.NewTimer(fanout.Patience)
	defer patient.Stop()
	for waited := false; ; {
		p, wait, err := j.lookFor(time.Now(), req, waited)
		if p != nil || err != nil {
			return p, err
		}
		select {
		case <-wait:
		case <-patient.C:
			waited = true
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-d.handlers.Done():
			return nil, handlers.ErrClosing
		}
	}
}
