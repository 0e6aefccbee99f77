package distributor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/trace"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// helloWithin bounds the time that an assigner, or a subscriber, takes to say hello.
	helloWithin = 5 * time.Second
	// Waits between attempts to attach, half of it at random.
	retryMin = 100 * time.Millisecond
	retryMax = 5 * time.Second
	// steady is how long a stream lasts that makes the next attempt a first one.
	steady = 10 * time.Second
	// window is how much an assigner may have sent that has not been taken off the
	// stream: about a whole assignment of 10^5 slices.
	window = 1 << 20
	// lookAgain is how often a second address of an attached assigner looks
	// whether the assigner is still attached by the other.
	lookAgain = time.Second
)

// errNoHello ends a stream to a peer that does not speak.
var errNoHello = fmt.Errorf("no hello within %s", 2*helloWithin)

// errSuperseded ends a stream to an assigner when a newer one to the same has
// taken its place: here, or as the assigner sees it, whichever is noticed first.
var errSuperseded = errors.New("superseded by a newer stream")

// link keeps a Distributor attached to whatever assigner answers at one address. In
// the second tier it is a Distributor of the first that answers there, or, with
// assigner, that assigner through one of those.
type link struct {
	d        *Distributor
	address  string           // host:port, the host an IP address where a name was configured
	conn     *grpc.ClientConn // nil with assigner
	assigner string
	log      *slog.Logger
	cancel   context.CancelFunc
	stopped  chan struct{} // closed when run has returned
	refusal  string        // why it was told, last, that it asks the wrong one
	missed   bool          // it was logged that there is no answer
}

// newLink connects lazily. name is the host:port that the address was found
// under, for certificates.
func (d *Distributor) newLink(address, name string) (*link, error) {
	opts := d.cfg.DialOptions
	if len(opts) == 0 {
		opts = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	opts = append([]grpc.DialOption{
		grpc.WithAuthority(name),
		// gRPC pings an idle connection no more often than this.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		// The attempts are paced below; this is only not to be slower.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: retryMin, Multiplier: 1.6, Jitter: 0.2, MaxDelay: retryMin},
			MinConnectTimeout: helloWithin,
		}),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		// Windows that are fixed need no pings to find their size with each answer.
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
	}, opts...)
	conn, err := grpc.NewClient("passthrough:///"+address, opts...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return &link{d: d, address: address, conn: conn, log: d.log.With("address", address), stopped: make(chan struct{})}, nil
}

// run attaches again and again until ctx ends.
func (l *link) run(ctx context.Context) {
	defer close(l.stopped)
	if l.conn != nil {
		defer l.conn.Close()
	}
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		id, err := l.attach(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errSuperseded):
			l.d.metrics.attempts.WithLabelValues("superseded").Inc()
			l.log.Warn("stream superseded: its other end is attached by another address, or another distributor has this ID", l.kind(), id)
			// Not at once: that would take the place of the newer stream again.
			for ok := backoff.Sleep(ctx, backoff.Jitter(lookAgain)); ok && l.d.attachedTo(l.firstTier(), id); ok = backoff.Sleep(ctx, backoff.Jitter(lookAgain)) {
			}
			failures = -1
			continue
		case id != "":
			l.missed = false
			l.d.metrics.attempts.WithLabelValues("attached").Inc()
			l.log.Warn("lost", l.kind(), id, "after", time.Since(began).Round(time.Millisecond), "error", err)
		default:
			l.d.metrics.attempts.WithLabelValues("failed").Inc()
			l.notReached(err)
		}
		l.d.failed(l.address, err)
		if time.Since(began) >= steady {
			failures = 0
		}
		backoff.Sleep(ctx, backoff.Jitter(min(retryMin<<min(failures, 10), retryMax)))
		if l.conn != nil {
			l.conn.ResetConnectBackoff()
		}
	}
}

// notReached logs why an attempt failed: once in a row, and loudly if it is the
// configuration that is wrong.
func (l *link) notReached(err error) {
	c := status.Code(err)
	if c != codes.FailedPrecondition && c != codes.Unimplemented && c != codes.PermissionDenied {
		level := slog.LevelWarn
		if l.missed {
			level = slog.LevelDebug
		}
		l.missed = true
		l.log.Log(context.Background(), level, "not reached, trying again", "wanted", l.kind(), "error", err)
	} else if l.refusal != err.Error() {
		l.refusal = err.Error()
		l.log.Error("attached to nothing at this address: it does not take this distributor", "wanted", l.kind(), "error", err)
	}
}

// attach runs one stream to its end. id is the assigner's, if it said hello.
func (l *link) attach(ctx context.Context) (id string, err error) {
	ctx, end := context.WithCancelCause(ctx)
	cancel := func() { end(nil) }
	defer cancel()
	late := time.AfterFunc(2*helloWithin, func() { end(errNoHello) })
	defer late.Stop()
	ctx, setUp := trace.Start(ctx, l.d.cfg.Tracer, "slicer.attach", slog.String("address", l.address))
	defer func() { setUp.End(err) }()
	conn, address, err := l.via()
	if err != nil {
		return "", err
	}
	stream, h, err := l.greet(ctx, conn)
	switch {
	case errors.Is(context.Cause(ctx), errNoHello):
		return "", errNoHello
	case err != nil:
		return "", err
	case !late.Stop():
		return "", errNoHello
	}
	a := l.d.newAttachment(h, l.firstTier(), address, conn, cancel)
	l.d.attached(a)
	setUp.Set(slog.String(l.kind(), a.ID))
	setUp.End(nil)
	sent := make(chan error, 1)
	go func() {
		err := a.send(ctx, stream)
		cancel()
		sent <- err
	}()
	err = l.receive(stream, a)
	cancel()
	<-sent
	if l.d.detached(a) || status.Code(err) == codes.Aborted {
		return a.ID, errSuperseded
	}
	return a.ID, err
}

// greet opens a stream and exchanges hellos.
func (l *link) greet(ctx context.Context, conn grpc.ClientConnInterface) (slicerv1.AssignerService_AttachClient, *slicerv1.AssignerHello, error) {
	stream, err := l.open(ctx, conn)
	if err != nil {
		return nil, nil, err
	}
	hello := &slicerv1.DistributorHello{DistributorId: l.d.cfg.ID, Zone: l.d.cfg.Zone}
	if err := stream.Send(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Hello{Hello: hello}}); err != nil {
		return nil, nil, endOfAttach(stream, err)
	}
	m, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	h := m.GetHello()
	if id := h.GetAssignerId(); !assignment.ValidToken(id, assignment.MaxNameLen) || l.assigner != "" && id != l.assigner {
		return nil, nil, errors.New("the first message is not a hello that says the assigner's id")
	}
	return stream, h, nil
}

// endOfAttach is why a stream has ended on which sending fails.
func endOfAttach(stream slicerv1.AssignerService_AttachClient, err error) error {
	if _, why := stream.Recv(); why != nil {
		return why
	}
	return err
}

// receive takes what the assigner says until the stream ends.
func (l *link) receive(stream slicerv1.AssignerService_AttachClient, a *attachment) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		a.received(time.Now(), m)
	}
}

// received takes what the assigner says.
func (a *attachment) received(now time.Time, m *slicerv1.AttachResponse) {
	switch m := m.GetMessage().(type) {
	case *slicerv1.AttachResponse_Preference:
		a.d.prefer(a, m.Preference)
	case *slicerv1.AttachResponse_Assignment:
		if j := a.d.lookup(m.Assignment.GetJob()); j != nil {
			a.assignment(now, j, m.Assignment)
		} else {
			delete(a.assemblers, m.Assignment.GetJob())
		}
	case *slicerv1.AttachResponse_Base:
		if j := a.d.lookup(m.Base.GetJob()); j != nil {
			a.base(j, m.Base)
		} else {
			delete(a.bases, m.Base.GetJob())
		}
	case *slicerv1.AttachResponse_Status:
		if j := a.d.lookup(m.Status.GetJob()); j != nil {
			j.step(now, fanout.Answered{From: a.peer(), Status: m.Status})
		}
	case *slicerv1.AttachResponse_RefuseTask:
		if j := a.d.lookup(m.RefuseTask.GetJob()); j != nil {
			j.step(now, fanout.TaskRefused{Refusal: m.RefuseTask})
		}
	case *slicerv1.AttachResponse_Quotas:
		if j := a.d.lookup(m.Quotas.GetJob()); j != nil {
			j.step(now, fanout.Quoted{From: a.Session, Quotas: m.Quotas.GetQuotas()})
		}
	case *slicerv1.AttachResponse_Acknowledged:
		a.acknowledged(now)
	case *slicerv1.AttachResponse_ClientIndexes:
		if j := a.d.lookup(m.ClientIndexes.GetJob()); j != nil {
			j.step(now, fanout.Indexed{From: a.Session, Indexes: m.ClientIndexes})
		}
		// Anything else is from a newer assigner, and can be done without.
	}
}

// assignment takes a piece of an assignment. What does not decode is asked for
// again, whole; nothing else suffers.
func (a *attachment) assignment(now time.Time, j *job, m *slicerv1.JobAssignment) {
	s := a.assemblers[j.name]
	if s == nil {
		s = new(wire.Assembler)
		a.assemblers[j.name] = s
	}
	var err error
	if c := m.GetChunk(); c != nil {
		if err = s.Add(c); err == nil {
			return
		}
	}
	// The buffer is not kept for a next one that may be small.
	delete(a.assemblers, j.name)
	var got *assignment.Assignment
	if t := m.GetTrailer(); err == nil && t != nil {
		got, err = s.Finish(t, j.held(assignment.Generation(t.GetBase())))
	} else if err == nil {
		err = fmt.Errorf("neither a chunk nor a trailer")
	}
	if err != nil {
		j.m.verdict(fanout.VerdictMalformed)
		j.log.Error("assignment does not decode, asking for the whole", "assigner", a.ID, "address", a.address, "error", err)
		j.step(now, fanout.Undecodable{From: a.Session})
		return
	}
	age := time.Duration(min(max(m.GetAgeUs(), 0), fanout.MaxReportAge.Microseconds())) * time.Microsecond
	v := j.step(now, fanout.Offered{From: a.peer(), Assignment: got, Age: age}).(fanout.Judged).Verdict
	j.m.verdict(v)
	if v == fanout.VerdictMalformed || v == fanout.VerdictForeign {
		j.log.Error("assignment not accepted", "assigner", a.ID, "address", a.address, "verdict", string(v),
			"generation", got.Generation(), "store", got.StoreID(), "of_job", got.Job())
	}
}
