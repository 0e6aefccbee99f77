package assigner

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/wire"
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

// Attach implements AssignerService.
func (v assignerService) Attach(stream slicerv1.AssignerService_AttachServer) error {
	a := v.a
	s := newSession(a, stream)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	// Receiving and sending end when this handler has returned.
	if !a.goRun(func() { s.finish(s.receive(stream)) }) {
		return errClosing
	}
	if !a.goRun(func() { s.finish(s.send(ctx)) }) {
		return errClosing
	}
	check := time.NewTicker(time.Second)
	defer check.Stop()
	err := error(nil)
	for err == nil {
		select {
		case err = <-s.end:
		case <-a.ctx.Done():
			err = errClosing
		case <-ctx.Done():
			err = status.FromContextError(ctx.Err()).Err()
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

func newSession(a *Assigner, out sender) *session {
	s := &session{a: a, out: out, kick: make(chan struct{}, 1), end: make(chan error, 1), jobs: make(map[string]*interest)}
	s.opened.Store(int64(a.now().Mono))
	return s
}

// sender takes a message to the Distributor.
type sender interface {
	Send(*slicerv1.AttachResponse) error
}

// session is one Distributor's stream.
type session struct {
	a    *Assigner
	out  sender
	kick chan struct{} // holds a token when there may be something to send
	end  chan error    // why the stream ends; the first counts

	// Set by the hello.
	id   membership.Session
	name string
	zone string

	opened  atomic.Int64      // when the stream began
	heard   atomic.Int64      // when anything came last, on the monotonic clock
	sending atomic.Int64      // since when a message waits to be taken, 0 if none does
	saidSo  time.Duration     // when the Distributor was last to be told that it is heard; the receiving goroutine's
	room    []generate.Report // for the reports of one message; the receiving goroutine's

	mu       sync.Mutex
	attached bool
	left     bool
	greeted  bool                   // the sending goroutine's
	hears    bool                   // the Distributor is to be told that it is heard
	prefs    []*slicerv1.Preference // to be sent, by store
	told     []*slicerv1.Preference // sent last, by store
	refusals []*slicerv1.RefuseTask
	jobs     map[string]*interest
	queue    []*interest // that have something to send, in turn
	beliefs  map[string]belief
	reading  bool // a base is being read from a store
}

// interest is what a Distributor has said about one job.
type interest struct {
	job    string
	runner *runner
	wants  bool
	stop   bool // it has said last that it does not want it any more
	held   mark // what it holds when it has taken what was sent
	// newest is what its slicelets hold, of the store: nothing older is sent of that.
	newest generate.Held
	// base is the answer to a WantBase, nil if none is due.
	base  *baseAnswer
	acked *acked // nil before it has said how far its subscribers are
	// What is to be sent: whatever is newest when its turn comes.
	assignment, status, indexes, queued bool
}

func (s *session) finish(err error) {
	select {
	case s.end <- err:
	default:
	}
}

func (s *session) supersede() { s.finish(errSuperseded) }

func (s *session) lastHeard() time.Duration { return time.Duration(s.heard.Load()) }

func (s *session) live() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attached && !s.left
}

// overdue says whether the Distributor has let something wait for too long.
func (s *session) overdue() error {
	now := int64(s.a.now().Mono)
	if at := s.sending.Load(); at != 0 && now-at > int64(sendWithin) {
		return status.Errorf(codes.DeadlineExceeded, "a message was not taken within %s", sendWithin)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.attached && now-s.opened.Load() > int64(helloWithin) {
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

// leave ends the session, and says whether it had begun.
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
func (s *session) receive(stream slicerv1.AssignerService_AttachServer) error {
	for first := true; ; first = false {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if first {
			if err := s.hello(m.GetHello()); err != nil {
				return err
			}
			continue
		}
		s.received(m)
	}
}

func (s *session) received(m *slicerv1.AttachRequest) {
	now := s.a.now().Mono
	s.heard.Store(int64(now))
	if now-s.saidSo >= hearsEvery {
		s.saidSo = now
		s.hear()
	}
	switch x := m.GetMessage().(type) {
	case *slicerv1.AttachRequest_Want:
		s.want(x.Want)
	case *slicerv1.AttachRequest_Reports:
		s.reports(x.Reports)
	case *slicerv1.AttachRequest_Acks:
		s.acks(x.Acks)
	case *slicerv1.AttachRequest_Clients:
		s.clients(x.Clients)
	case *slicerv1.AttachRequest_WantBase:
		s.wantBase(x.WantBase)
	case *slicerv1.AttachRequest_Beliefs:
		s.believes(x.Beliefs)
	}
}

func (s *session) hello(h *slicerv1.DistributorHello) error {
	if h == nil {
		return status.Error(codes.InvalidArgument, "the first message is not a hello")
	}
	s.name, s.zone = h.GetDistributorId(), h.GetZone()
	// A Distributor's name obeys the rules of an assigner's.
	if err := (store.Candidate{ID: s.name, Address: "x", Zone: s.zone}).Validate(); err != nil {
		return status.Errorf(codes.InvalidArgument, "hello: distributor: %v", err)
	}
	s.heard.Store(int64(s.a.now().Mono))
	if !s.a.attach(s) {
		return errClosing
	}
	s.a.log.Info("distributor attached", "distributor", s.name, "session", uint64(s.id), "zone", s.zone)
	poke(s.kick)
	return nil
}

// interestIn is what the Distributor says about a job, with the job's runner. It
// returns nil when there can be no such job.
func (s *session) interestIn(job string) *interest {
	s.mu.Lock()
	in := s.jobs[job]
	full := len(s.jobs) >= maxInterests
	s.mu.Unlock()
	if in != nil {
		return in
	}
	if err := assignment.ValidateJobName(job); err != nil || full {
		s.a.metrics.rejected.Inc()
		s.a.log.Warn("message about a job ignored", "distributor", s.name, "reason", "bad name, or too many jobs", "job", job[:min(len(job), 80)], "jobs", maxInterests)
		return nil
	}
	r := s.a.join(job, s)
	if r == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	in = &interest{job: job, runner: r}
	s.jobs[job] = in
	return in
}

// maxInterests is how many jobs one Distributor may speak of.
const maxInterests = 1 << 16

func (s *session) want(w *slicerv1.Want) {
	in := s.interestIn(w.GetJob())
	if in == nil {
		return
	}
	newest := generate.Held{Store: w.GetNewestReportedStoreId(), Generation: assignment.Generation(w.GetNewestReported())}
	s.mu.Lock()
	in.wants, in.stop, in.newest = !w.GetStop(), w.GetStop(), newest
	in.held = mark{assignment.Generation(w.GetGeneration()), w.GetStoreId(), w.GetChecksum()}
	if in.wants {
		s.enqueue(in, true, true)
	}
	s.mu.Unlock()
	if w.GetStop() && s.release(in) {
		return
	}
	in.runner.recheck()
	in.runner.tell(func(c *generate.Core, now generate.Now) {
		c.Wanted(now, s.id, !w.GetStop(), newest, generate.Held{Store: w.GetStoreId(), Generation: assignment.Generation(w.GetGeneration())})
	})
}

// release forgets a job that there is none of and that is not wanted any more:
// names that somebody made up must not add up.
func (s *session) release(in *interest) bool {
	if !in.runner.release(s) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.jobs, in.job)
	return true
}

// forgets reports whether the Distributor has said that it does not want a job, of
// which nothing is kept from then on.
func (s *session) forgets(job string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.jobs[job]
	if in == nil || !in.stop {
		return false
	}
	delete(s.jobs, job)
	return true
}

func (s *session) acks(m *slicerv1.Acks) {
	in := s.interestIn(m.GetJob())
	if in == nil {
		return
	}
	s.mu.Lock()
	in.acked = newAcked(s.a.now().Mono, m)
	s.mu.Unlock()
	st := m.GetStragglers()
	a := generate.Acks{
		Min: assignment.Generation(m.GetMinGeneration()), Empty: m.GetEmpty(),
		Stragglers: st[:min(len(st), wire.MaxStragglers)], Clerks: m.GetClerks(), Slicelets: m.GetSlicelets(),
	}
	in.runner.tell(func(c *generate.Core, now generate.Now) { c.Acked(now, s.id, a) })
}
