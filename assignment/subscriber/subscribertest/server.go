package subscribertest

import (
	"slices"
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

// Server is a Distributor or a Backup Distributor of one job that says what the
// test tells it to. All methods are safe for concurrent use.
type Server struct {
	slicerv1.UnimplementedSubscriberServiceServer
	net  *Network
	addr string
	grpc *grpc.Server
	done chan struct{}

	mu      sync.Mutex
	newest  *assignment.Assignment
	before  map[assignment.Generation]*assignment.Assignment
	status  *slicerv1.Status
	refusal error
	silent  bool
	fetches int
	parts   bool
	forged  []*slicerv1.WatchResponse
	streams map[*Stream]bool
	heard   []*slicerv1.WatchRequest
	changed chan struct{} // closed and replaced when something was heard or a stream changed
}

// Start serves an address of the network.
func (n *Network) Start(addr string) *Server {
	s := &Server{
		net: n, addr: addr, done: make(chan struct{}),
		before:  make(map[assignment.Generation]*assignment.Assignment),
		status:  &slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY},
		streams: make(map[*Stream]bool),
		changed: make(chan struct{}),
		grpc: grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: 5 * time.Second, PermitWithoutStream: true,
		})),
	}
	slicerv1.RegisterSubscriberServiceServer(s.grpc, s)
	l := n.listen(addr)
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(l)
	}()
	return s
}

// Stop cuts all connections and refuses new ones.
func (s *Server) Stop() {
	s.net.unlisten(s.addr)
	s.grpc.Stop()
	<-s.done
}

// Put makes an assignment the newest and sends it to all subscribers, as a delta to those
// that hold an older one that was Put before; to those that have not acknowledged the
// last one yet, once they have.
func (s *Server) Put(a *assignment.Assignment) {
	s.update(func() {
		if s.newest != nil {
			s.before[s.newest.Generation()] = s.newest
		}
		s.newest = a
	})
}

// Say makes a status the newest and sends it to all subscribers. Nil is none: then
// streams begin with the assignment.
func (s *Server) Say(m *slicerv1.Status) { s.update(func() { s.status = m }) }

// SendParts makes the server send parts, of however few slices, to those that come from now on
// and read them.
func (s *Server) SendParts() { s.update(func() { s.parts = true }) }

// Refuse ends all streams, and those to come, with an error; nil ends that.
func (s *Server) Refuse(err error) { s.update(func() { s.refusal = err }) }

// Silence makes the server take everything and say nothing any more.
func (s *Server) Silence(on bool) { s.update(func() { s.silent = on }) }

func (s *Server) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	for st := range s.streams {
		st.notify()
	}
}

// Heard returns all messages so far, of all streams, in order of arrival.
func (s *Server) Heard() []*slicerv1.WatchRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*slicerv1.WatchRequest(nil), s.heard...)
}

// Streams is how many there are now.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Changed is closed when the next message arrives or a stream begins or ends.
func (s *Server) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Send puts a message on every stream as it is.
func (s *Server) Send(m *slicerv1.WatchResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		st.raw = append(st.raw, m)
		st.notify()
	}
}

// Stream is one subscriber's.
type Stream struct {
	wake chan struct{}
	raw  []*slicerv1.WatchResponse // to send, under Server.mu

	held   assignment.Generation // as the subscriber says, under Server.mu
	store  uint64
	said   *slicerv1.Status
	flight *assignment.Assignment // sent, not acknowledged yet
	whole  bool                   // asked for
	closed bool

	compressed bool   // it reads compressed wholes
	part       string // the task whose part it is sent, "" for the whole
}

func (st *Stream) notify() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// Watch serves the stream.
func (s *Server) Watch(stream grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	st := &Stream{wake: make(chan struct{}, 1)}
	s.enter(st, first)
	defer s.leave(st)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				s.end(st)
				return
			}
			s.note(st, m)
		}
	}()
	for {
		msgs, over, err := s.todo(st)
		if err != nil || over {
			return err
		}
		for _, m := range msgs {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		select {
		case <-st.wake:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}

// Forge makes Fetch send these messages, whatever is asked for.
func (s *Server) Forge(ms ...*slicerv1.WatchResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forged = append([]*slicerv1.WatchResponse{}, ms...)
}

// Fetch serves what was Put.
func (s *Server) Fetch(r *slicerv1.FetchRequest, stream grpc.ServerStreamingServer[slicerv1.WatchResponse]) error {
	s.mu.Lock()
	a, silent, send := s.newest, s.silent, s.forged
	if g := assignment.Generation(r.GetGeneration()); g != 0 && (a == nil || g != a.Generation()) {
		a = s.before[g]
	}
	s.fetches++
	s.mu.Unlock()
	switch {
	case silent:
		<-stream.Context().Done()
		return status.FromContextError(stream.Context().Err()).Err()
	case send == nil && (a == nil || a.Job() != r.GetJob()):
		return status.Errorf(codes.NotFound, "generation %d is not held here", r.GetGeneration())
	}
	if send == nil {
		frame, err := wire.WholeFrame(a)
		switch {
		case err == nil && s.parts && r.GetPart() != "":
			frame, err = wire.PartFrame(nil, assignment.NewCut(a).Part(r.GetPart()))
		case err == nil && r.GetCompressed():
			frame = frame.Compressed()
		}
		if err != nil {
			return err
		}
		send = Messages(frame)
	}
	for _, m := range send {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// Fetches is how often something was fetched, or tried to be.
func (s *Server) Fetches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetches
}

func (s *Server) enter(st *Stream, hello *slicerv1.WatchRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[st] = true
	h := hello.GetHello()
	st.held, st.store, st.compressed = assignment.Generation(h.GetGeneration()), h.GetStoreId(), h.GetCompressed()
	if s.parts && h.GetParts() {
		st.part = h.GetTask().GetName()
	}
	s.heardLocked(hello)
}

func (s *Server) leave(st *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
	s.newsLocked()
}

func (s *Server) end(st *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.closed = true
	st.notify()
}

func (s *Server) note(st *Stream, m *slicerv1.WatchRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := m.GetAck(); a != nil {
		st.held, st.whole = assignment.Generation(a.Generation), a.Refusal != ""
		st.flight = nil
		st.notify()
	}
	s.heardLocked(m)
}

func (s *Server) heardLocked(m *slicerv1.WatchRequest) {
	s.heard = append(s.heard, m)
	s.newsLocked()
}

func (s *Server) newsLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// todo is what to send now. The stream ends when it is over or with an error.
func (s *Server) todo(st *Stream) (msgs []*slicerv1.WatchResponse, over bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent {
		return nil, false, nil
	}
	if s.refusal != nil || st.closed {
		return nil, true, s.refusal
	}
	msgs = st.raw
	st.raw = nil
	if s.status != nil && st.said != s.status {
		st.said = s.status
		msgs = append(msgs, &slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Status{Status: s.status}})
	}
	a := s.newest
	if a == nil || st.flight != nil || !st.whole && st.store == a.StoreID() && st.held >= a.Generation() {
		return msgs, false, nil
	}
	frame, err := wire.WholeFrame(a)
	if err == nil && st.compressed {
		frame = frame.Compressed()
	}
	if base := s.before[st.held]; base != nil && !st.whole && base.StoreID() == a.StoreID() {
		frame, err = wire.DeltaFrame(base, a)
	}
	if st.part != "" {
		frame, err = s.partFrame(st, a)
	}
	if err != nil {
		return nil, true, err
	}
	st.flight, st.whole, st.store = a, false, a.StoreID()
	return append(msgs, Messages(frame)...), false, nil
}

// partFrame is what brings a stream to the part of an assignment.
func (s *Server) partFrame(st *Stream, a *assignment.Assignment) (*wire.Frame, error) {
	var on *assignment.Cut
	if base := s.before[st.held]; base != nil {
		on = assignment.NewCut(base)
	}
	part, held := assignment.NewCut(a).Since(on, st.part)
	if st.whole {
		held = nil
	}
	return wire.PartFrame(held, part)
}

// Messages are a frame as it is sent.
func Messages(f *wire.Frame) []*slicerv1.WatchResponse {
	return slices.Collect(f.Responses())
}
