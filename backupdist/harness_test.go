package backupdist

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a Backup Distributor in memory.
func start(t *testing.T, m *memStore) (*Server, *grpc.ClientConn) {
	t.Helper()
	return startWith(t, Config{Store: m, Registerer: prometheus.NewRegistry()})
}

func startWith(t *testing.T, cfg Config) (*Server, *grpc.ClientConn) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	l := bufconn.Listen(1 << 16)
	g := grpc.NewServer(ServerOptions()...)
	s.Register(g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Serve(l)
	}()
	t.Cleanup(func() { g.Stop(); <-done })
	cc, err := grpc.NewClient("passthrough:///b", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return s, cc
}

// sub is a raw subscriber.
type sub struct {
	t      *testing.T
	stream slicerv1.SubscriberService_WatchClient
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	silent bool
	refuse int
	parts  bool // it reads parts
	a      *assignment.Assignment
	kinds  []string
	status *slicerv1.Status
	err    error
}

func hello(job string) *slicerv1.Hello {
	return &slicerv1.Hello{Job: job, Role: slicerv1.Role_ROLE_CLERK, ClientId: "c"}
}

// subscribe begins with what set sets: later a message may have come already.
func subscribe(t *testing.T, cc *grpc.ClientConn, h *slicerv1.Hello, base *assignment.Assignment, set ...func(*sub)) *sub {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if base != nil {
		h.Generation, h.StoreId, h.Checksum = int64(base.Generation()), base.StoreID(), base.Checksum()
	}
	s := &sub{t: t, stream: stream, cancel: cancel, done: make(chan struct{}), a: base}
	for _, f := range set {
		f(s)
	}
	stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}})
	go s.run()
	t.Cleanup(s.close)
	return s
}

func (s *sub) close() { s.cancel(); <-s.done }

func (s *sub) run() {
	defer close(s.done)
	asm := wire.Assembler{Parts: s.parts}
	for {
		m, err := s.stream.Recv()
		s.mu.Lock()
		switch {
		case err != nil:
			s.err = err
			s.mu.Unlock()
			return
		case m.GetChunk() != nil:
			asm.Add(m.GetChunk())
		case m.GetTrailer() != nil:
			s.trailer(&asm, m.GetTrailer())
		case m.GetStatus() != nil:
			s.status = m.GetStatus()
		}
		s.mu.Unlock()
	}
}

// received is the assignment that a Fetch is answered with.
func received(stream grpc.ServerStreamingClient[slicerv1.WatchResponse]) (a *assignment.Assignment, tr *slicerv1.Trailer, err error) {
	var asm wire.Assembler
	for a == nil {
		m, err := stream.Recv()
		if err != nil {
			return nil, nil, err
		}
		if a, err = asm.Take(m, nil); err != nil {
			return nil, nil, err
		}
		tr = m.GetTrailer()
	}
	return a, tr, nil
}

func (s *sub) trailer(asm *wire.Assembler, tr *slicerv1.Trailer) {
	kind := "delta"
	switch {
	case tr.Part && tr.Base == 0:
		kind = "part"
	case tr.Part:
		kind = "part delta"
	case tr.Base == 0 && tr.WholeSize != 0:
		kind = "compressed"
	case tr.Base == 0:
		kind = "whole"
	}
	s.kinds = append(s.kinds, kind)
	ack := &slicerv1.Ack{Generation: tr.Generation}
	a, err := asm.Finish(tr, s.a)
	switch {
	case err != nil:
		s.t.Error(err)
	case s.refuse > 0:
		s.refuse--
		ack.Refusal = "told to"
	case s.a != nil && s.a.StoreID() == a.StoreID() && a.Generation() < s.a.Generation():
		s.t.Errorf("sent back to %d", a.Generation())
	default:
		s.a = a
	}
	if !s.silent {
		s.stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: ack}})
	}
}

// expect settles and compares what the subscriber holds and how it came.
func (s *sub) expect(want *assignment.Assignment, kinds ...string) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.a == nil || s.a.Checksum() != want.Checksum():
		s.t.Errorf("holds %v, want generation %d; %v", s.a, want.Generation(), s.err)
	case !slices.Equal(s.kinds, kinds):
		s.t.Errorf("updates were %v, want %v", s.kinds, kinds)
	}
}

func (s *sub) code() codes.Code {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return status.Code(s.err)
}
