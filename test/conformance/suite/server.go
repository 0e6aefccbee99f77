package suite

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// server plays a Distributor, or a Backup Distributor, that does what a check says.
type server struct {
	slicerv1.UnimplementedSubscriberServiceServer
	t    *T
	name string // in messages: A, B, backup
	lis  *listener
	grpc *grpc.Server
	done chan struct{}
	// leases are those of jobs in consistent mode.
	leases *leases

	mu      sync.Mutex
	fetches []*slicerv1.FetchRequest
	serves  *assignment.Assignment // what Fetch answers with
	refuse  error                  // of streams to come, once their hello is there
	arrived []*watch
	refused []time.Time // hellos that were refused
	unknown string      // a method called that there is not
	changed chan struct{}
}

// pings are at least so far apart, as at a Distributor.
const leastPing = 5 * time.Second

func newServer(t *T, name string) *server {
	lis, err := listen()
	if err != nil {
		panic(trouble{err})
	}
	s := &server{t: t, name: name, lis: lis, done: make(chan struct{}), changed: make(chan struct{}), leases: newLeases(t)}
	s.grpc = grpc.NewServer(
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPing, PermitWithoutStream: true}),
		grpc.UnknownServiceHandler(s.unknownMethod),
		grpc.WaitForHandlers(true),
	)
	slicerv1.RegisterSubscriberServiceServer(s.grpc, s)
	slicerv1.RegisterLeaseServiceServer(s.grpc, s.leases)
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(lis)
	}()
	return s
}

func (s *server) addr() string { return s.lis.Addr().String() }

func (s *server) close() {
	s.lis.thaw()
	s.grpc.Stop()
	<-s.done
}

func (s *server) unknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.Method(stream.Context())
	s.update(func() { s.unknown = method })
	return status.Errorf(codes.Unimplemented, "%s", method)
}

func (s *server) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// refuseAll ends each stream to come with err, after its hello; nil ends that.
func (s *server) refuseAll(err error) { s.update(func() { s.refuse = err }) }

// attempts are the times of the streams that were refused.
func (s *server) attempts() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.refused...)
}

// wait waits until look, which is called with s.mu held, is true, and reports whether it was.
func (s *server) wait(within time.Duration, look func() bool) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		s.mu.Lock()
		ok, changed := look(), s.changed
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		}
	}
}

// accept is the next stream of a subscriber, whose hello is checked for what every hello has.
func (s *server) accept() *watch {
	w := s.next(s.t.patience)
	if w == nil {
		s.mu.Lock()
		unknown := s.unknown
		s.mu.Unlock()
		seen := "none"
		if unknown != "" {
			seen = "a call of " + unknown
		}
		s.t.fault(fmt.Sprintf("a Watch stream with a Hello at %s within %s", s.name, s.t.patience), seen)
	}
	return w
}

// next is nil if none comes in time.
func (s *server) next(within time.Duration) (w *watch) {
	s.wait(within, func() bool {
		if len(s.arrived) > 0 {
			w, s.arrived = s.arrived[0], s.arrived[1:]
		}
		return w != nil
	})
	return w
}

// Watch is SubscriberService's.
func (s *server) Watch(stream grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	w := &watch{s: s, stream: stream, first: first, at: time.Now(), end: make(chan error, 1), over: make(chan struct{}), changed: make(chan struct{})}
	s.t.note("%s gets %s", s.name, show(first))
	var refuse error
	s.update(func() {
		if refuse = s.refuse; refuse != nil {
			s.refused = append(s.refused, time.Now())
		} else {
			s.arrived = append(s.arrived, w)
		}
	})
	if refuse != nil {
		return refuse
	}
	var receiver sync.WaitGroup
	receiver.Go(w.receive)
	select {
	case err = <-w.end:
		s.t.note("%s ends the stream: %v", s.name, err)
	case <-w.over: // the subscriber has
	case <-stream.Context().Done():
	}
	w.sending.Lock()
	w.ended = true
	w.sending.Unlock()
	// The receiver ends with the stream, after this has returned.
	go func() {
		receiver.Wait()
		w.close()
	}()
	return err
}

// serve has Fetch answer with an assignment, whichever is asked for.
func (s *server) serve(a *assignment.Assignment) { s.update(func() { s.serves = a }) }

// fetched is the last request of Fetch, nil if there was none.
func (s *server) fetched() *slicerv1.FetchRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fetches) == 0 {
		return nil
	}
	return s.fetches[len(s.fetches)-1]
}

// Fetch is SubscriberService's.
func (s *server) Fetch(q *slicerv1.FetchRequest, stream grpc.ServerStreamingServer[slicerv1.WatchResponse]) error {
	s.t.note("%s gets Fetch %s", s.name, show(q))
	var a *assignment.Assignment
	s.update(func() { s.fetches, a = append(s.fetches, q), s.serves })
	if a == nil {
		return status.Error(codes.NotFound, "there is no such assignment")
	}
	for m := range whole(a).Responses() {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// watch is one stream of a subscriber.
type watch struct {
	s      *server
	stream grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]
	first  *slicerv1.WatchRequest
	at     time.Time
	end    chan error    // ends it
	over   chan struct{} // closed when nothing more comes

	sending sync.Mutex
	ended   bool // the handler returns

	mu      sync.Mutex
	acks    []*slicerv1.Ack
	reports []report
	hellos  int // after the first
	changed chan struct{}
	once    sync.Once
}

type report struct {
	*slicerv1.Report
	at time.Time
}

func (w *watch) close() { w.once.Do(func() { close(w.over) }) }

func (w *watch) receive() {
	for {
		m, err := w.stream.Recv()
		if err != nil {
			w.s.t.note("%s: the stream has ended: %v", w.s.name, err)
			w.close()
			return
		}
		w.s.t.note("%s gets %s", w.s.name, show(m))
		w.mu.Lock()
		switch {
		case m.GetAck() != nil:
			w.acks = append(w.acks, m.GetAck())
		case m.GetReport() != nil:
			w.reports = append(w.reports, report{m.GetReport(), time.Now()})
		case m.GetHello() != nil:
			w.hellos++
		}
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
	}
}

func (w *watch) wait(within time.Duration, look func() bool) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for last := false; ; {
		w.mu.Lock()
		ok, changed := look(), w.changed
		w.mu.Unlock()
		if ok || last {
			return ok
		}
		select {
		case <-changed:
		case <-w.over:
			last = true
		case <-timer.C:
			last = true
		}
	}
}

// hello is the first message; that it is one is for the check of it to say.
func (w *watch) hello() *slicerv1.Hello { return w.first.GetHello() }

// send sends messages as they are. That the subscriber has gone is for a later wait to find.
func (w *watch) send(ms ...*slicerv1.WatchResponse) {
	w.sending.Lock()
	defer w.sending.Unlock()
	for _, m := range ms {
		if w.ended {
			return
		}
		w.s.t.note("%s sends %s", w.s.name, show(m))
		_ = w.stream.Send(m)
	}
}

// status sends one.
func (w *watch) status(m *slicerv1.Status) {
	w.send(&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Status{Status: m}})
}

// frame sends an assignment as it is encoded.
func (w *watch) frame(f *wire.Frame) {
	for m := range f.Responses() {
		w.send(m)
	}
}

// put sends an assignment whole.
func (w *watch) put(a *assignment.Assignment) { w.frame(whole(a)) }

// delta sends what turns base into a.
func (w *watch) delta(base, a *assignment.Assignment) { w.frame(delta(base, a)) }

// finish ends the stream with an error.
func (w *watch) finish(err error) {
	select {
	case w.end <- err:
	default:
	}
}

// ack is the next acknowledgement, nil if none comes in time.
func (w *watch) ack(within time.Duration) (a *slicerv1.Ack) {
	w.wait(within, func() bool {
		if len(w.acks) > 0 {
			a, w.acks = w.acks[0], w.acks[1:]
		}
		return a != nil
	})
	return a
}

// wantTaken expects the next acknowledgement to be of a.
func (w *watch) wantTaken(a *assignment.Assignment, of string) {
	want := fmt.Sprintf("an Ack of generation %d without a refusal, for %s", a.Generation(), of)
	got := w.ack(w.s.t.patience)
	if got == nil || got.GetRefusal() != "" || got.GetGeneration() != int64(a.Generation()) {
		w.s.t.fault(want, w.sawAck(got))
	}
}

// wantRefused expects the next acknowledgement to refuse what was sent, while held, nil for
// none, stays in hand.
func (w *watch) wantRefused(held *assignment.Assignment, of string) {
	g := int64(0)
	if held != nil {
		g = int64(held.Generation())
	}
	want := fmt.Sprintf("an Ack with a refusal, of generation %d, for %s", g, of)
	got := w.ack(w.s.t.patience)
	if got == nil || got.GetRefusal() == "" || got.GetGeneration() != g {
		w.s.t.fault(want, w.sawAck(got))
	}
}

func (w *watch) sawAck(a *slicerv1.Ack) string {
	switch {
	case a != nil:
		return show(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: a}})
	case w.gone(0):
		return "the end of the stream"
	}
	return fmt.Sprintf("none within %s", w.s.t.patience)
}

// gone reports whether the subscriber leaves the stream in time.
func (w *watch) gone(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-w.over:
		return true
	default:
	}
	select {
	case <-w.over:
		return true
	case <-timer.C:
		return false
	}
}

// report is the next one that will do, nil if none comes in time. Those before are dropped.
func (w *watch) report(within time.Duration, good func(report) bool) (found *report) {
	w.wait(within, func() bool {
		for len(w.reports) > 0 && found == nil {
			if r := w.reports[0]; good(r) {
				found = &r
			}
			w.reports = w.reports[1:]
		}
		return found != nil
	})
	return found
}

// forget drops the reports that have come.
func (w *watch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = nil
}
