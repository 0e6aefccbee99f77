package assigner

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assigner/downstream"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/trace"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// assignerService is what Distributors speak to.
type assignerService struct {
	slicerv1.UnimplementedAssignerServiceServer
	a *Assigner
}

var (
	errClosing    = status.Error(codes.Unavailable, "this assigner is closing")
	errSuperseded = status.Error(codes.Aborted, "a newer stream of this distributor has taken the place of this one")
)

// takenError is that a Distributor's id is that of another identity.
type takenError struct{ by access.Identity }

func (e *takenError) Error() string { return "the distributor's id is that of " + string(e.by) }

// attachMethod is what refusals call it.
const attachMethod = "Attach"

// Attach implements AssignerService, for peers that are the control plane's own, and for as
// long as the policy says so.
func (v assignerService) Attach(stream slicerv1.AssignerService_AttachServer) (err error) {
	a := v.a
	_, setUp := trace.Start(stream.Context(), a.cfg.Tracer, "slicer.attach")
	defer func() { setUp.End(err) }()
	_, changed := a.cfg.Rights.Policy()
	caller := a.cfg.Rights.Caller(stream.Context())
	if err := a.cfg.Rights.CheckPlane(caller, attachMethod); err != nil {
		return err
	}
	s := &session{a: a, caller: caller, setUp: setUp, out: stream, wake: make(chan struct{}, 1), end: make(chan error, 1), stream: downstream.NewStream(a.cfg.ID, a.cfg.Zone), opened: a.now().Mono}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	// Receiving and sending end when this handler has returned.
	if !a.goRun(func() { s.finish(s.receive()) }) {
		return errClosing
	}
	if !a.goRun(func() { s.finish(s.send(ctx)) }) {
		return errClosing
	}
	check := time.NewTicker(time.Second)
	defer check.Stop()
	for err == nil {
		select {
		case err = <-s.end:
		case <-a.ctx.Done():
			err = errClosing
		case <-ctx.Done():
			err = status.FromContextError(ctx.Err()).Err()
		case <-changed:
			_, changed = a.cfg.Rights.Policy()
			err = a.cfg.Rights.CheckPlane(a.cfg.Rights.Caller(ctx), attachMethod)
		case <-check.C:
			err = s.overdue()
		}
	}
	if s.leave() {
		a.log.Info("distributor detached", "distributor", s.name, "session", uint64(s.id), "error", err)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// session is one Distributor's stream.
type session struct {
	a      *Assigner
	out    slicerv1.AssignerService_AttachServer
	wake   chan struct{} // holds a token when there may be something to send
	end    chan error    // why the stream ends; the first counts
	opened time.Duration // when the stream began
	caller enforce.Caller
	setUp  trace.Span // until the hello

	// Set by the hello.
	id   downstream.Session
	name string
	zone string

	heard   atomic.Int64 // when anything came last, on the monotonic clock
	sending atomic.Int64 // since when a message waits to be taken, 0 if none does

	mu       sync.Mutex
	attached bool
	left     bool
	reading  bool // a base is being read from a store
	stream   *downstream.Stream
}

func (s *session) finish(err error) {
	select {
	case s.end <- err:
	default:
	}
}

func (s *session) supersede() { s.finish(errSuperseded) }

func (s *session) live() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attached && !s.left
}

// tell changes what is to be said on the stream, and notifies its sender.
func (s *session) tell(f func(*downstream.Stream)) {
	s.mu.Lock()
	f(s.stream)
	s.mu.Unlock()
	notify(s.wake)
}

// overdue reports whether the Distributor has let something wait for too long.
func (s *session) overdue() error {
	now := s.a.now().Mono
	if at := s.sending.Load(); at != 0 && int64(now)-at > int64(sendWithin) {
		return status.Errorf(codes.DeadlineExceeded, "a message was not taken within %s", sendWithin)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.attached && now-s.opened > helloWithin {
		return status.Errorf(codes.DeadlineExceeded, "no hello within %s", helloWithin)
	}
	return nil
}

// begin makes the session one that counts, unless it has ended.
func (s *session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attached = !s.left
	return s.attached
}

// leave ends the session, and reports whether it had begun.
func (s *session) leave() bool {
	s.mu.Lock()
	was := s.attached && !s.left
	s.left = true
	s.mu.Unlock()
	if was {
		s.a.detach(s)
	}
	return was
}

// receive takes in what the Distributor says.
func (s *session) receive() error {
	m, err := s.out.Recv()
	if err == nil {
		err = s.hello(m.GetHello())
	}
	if err != nil {
		return err
	}
	reader := downstream.Reader{From: s.id, Name: s.name}
	for {
		if m, err = s.out.Recv(); err != nil {
			return err
		}
		s.received(&reader, m)
	}
}

func (s *session) hello(h *slicerv1.DistributorHello) error {
	if err := downstream.CheckHello(h); err != nil {
		return err
	}
	s.name, s.zone = h.GetDistributorId(), h.GetZone()
	s.heard.Store(int64(s.a.now().Mono))
	var taken *takenError
	if err := s.a.attach(s); errors.As(err, &taken) {
		return s.a.cfg.Rights.RefuseName(s.caller, attachMethod, "distributor "+s.name, taken.by)
	} else if err != nil {
		return err
	}
	s.a.log.Info("distributor attached", "distributor", s.name, "session", uint64(s.id), "zone", s.zone, "identity", s.caller.Name(), "peer", s.caller.From())
	s.setUp.Set(slog.String("distributor", s.name), slog.String("identity", s.caller.Name()))
	s.setUp.End(nil)
	notify(s.wake)
	return nil
}

func (s *session) received(reader *downstream.Reader, m *slicerv1.AttachRequest) {
	now := s.a.now().Mono
	s.heard.Store(int64(now))
	s.mu.Lock()
	job, err := s.stream.Received(now, m)
	hears := s.stream.Hears()
	s.mu.Unlock()
	if hears {
		notify(s.wake)
	}
	if err != nil {
		s.a.metrics.rejected.Inc()
		s.a.log.Warn("message about a job ignored", "distributor", s.name, "error", err)
	}
	if job == "" {
		return
	}
	e, bad := reader.Read(now, m)
	for _, b := range bad {
		s.a.metrics.rejected.Inc()
		s.a.log.Warn("task report ignored", "job", job, "distributor", s.name, "task", b.Task, "error", b.Err)
	}
	if r, answer := s.a.tell(job, e); answer != nil {
		s.readBase(r, answer.(downstream.ReadBase))
	}
}

// readBase looks for an older assignment in the job's store, which keeps more of them. One
// is read at a time; a Distributor that asks for more meanwhile is told that there is none,
// and sends its subscribers the whole.
func (s *session) readBase(r *runner, of downstream.ReadBase) {
	home := r.whose()
	s.mu.Lock()
	can := home != nil && home.backend.ID() == of.Held.Store && !s.reading
	s.reading = s.reading || can
	s.mu.Unlock()
	if !can {
		r.tell(downstream.BaseRead{Of: of})
		return
	}
	s.a.goRun(func() {
		ctx, cancel := context.WithTimeout(s.a.ctx, readWithin)
		defer cancel()
		a, err := home.backend.ReadGeneration(ctx, r.name, of.Held.Generation)
		if err != nil {
			s.a.log.Debug("a base cannot be had", "job", r.name, "distributor", s.name, "generation", int64(of.Held.Generation), "error", err)
			a = nil
		}
		s.mu.Lock()
		s.reading = false
		s.mu.Unlock()
		r.tell(downstream.BaseRead{Of: of, Assignment: a})
	})
}

// send sends until the stream ends.
func (s *session) send(ctx context.Context) error {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !s.live() {
			continue // not before the hello
		}
		if err := s.sendAll(); err != nil {
			return err
		}
	}
}

// sendAll sends what there is to send now.
func (s *session) sendAll() error {
	for {
		s.mu.Lock()
		m, job, ok := s.stream.Pop()
		s.mu.Unlock()
		if !ok {
			return nil
		}
		err := error(nil)
		if m != nil {
			err = s.put(m)
		} else if r := s.a.lookup(job); r != nil {
			err = s.sendJob(r)
		}
		if err != nil {
			return err
		}
	}
}

// sendJob sends what there is of a job.
func (s *session) sendJob(r *runner) error {
	for {
		answer, _ := r.step(downstream.Ready{To: s.id})
		say, ok := answer.(downstream.Say)
		if !ok {
			return nil
		}
		f, err := say.Frame()
		if err != nil {
			s.a.log.Error("assignment does not encode", "job", r.name, "generation", int64(say.Assignment.Generation()), "error", err)
		}
		for m := range say.Messages(f, func() time.Duration { return s.a.now().Mono }) {
			if err := s.put(m); err != nil {
				return err
			}
		}
		if f != nil && !say.Base {
			s.a.metrics.sent(r.name, f)
		}
	}
}

func (s *session) put(m *slicerv1.AttachResponse) error {
	s.sending.Store(int64(s.a.now().Mono) + 1)
	defer s.sending.Store(0)
	return s.out.Send(m)
}
