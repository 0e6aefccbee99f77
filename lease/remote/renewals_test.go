package remote_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers renewals as a test says, over streams unless it is of an old version.
type server struct {
	slicerv1.UnimplementedLeaseServiceServer
	old     atomic.Bool
	streams atomic.Int64
	calls   atomic.Int64
	answer  func(n int64, q *slicerv1.RenewSessionsRequest) []*slicerv1.RenewSessionsResponse
	n       atomic.Int64
}

const granted = 10 * time.Second

func (v *server) OpenSession(context.Context, *slicerv1.OpenSessionRequest) (*slicerv1.OpenSessionResponse, error) {
	return &slicerv1.OpenSessionResponse{Session: make([]byte, 16), TtlMs: granted.Milliseconds(), Jobs: []string{"job"}}, nil
}

func (v *server) RenewSession(context.Context, *slicerv1.RenewSessionRequest) (*slicerv1.RenewSessionResponse, error) {
	v.calls.Add(1)
	return &slicerv1.RenewSessionResponse{TtlMs: granted.Milliseconds()}, nil
}

func (v *server) CloseSession(context.Context, *slicerv1.CloseSessionRequest) (*slicerv1.CloseSessionResponse, error) {
	return &slicerv1.CloseSessionResponse{}, nil
}

func (v *server) RenewSessions(s grpc.BidiStreamingServer[slicerv1.RenewSessionsRequest, slicerv1.RenewSessionsResponse]) error {
	if v.old.Load() {
		return v.UnimplementedLeaseServiceServer.RenewSessions(s)
	}
	v.streams.Add(1)
	for {
		q, err := s.Recv()
		if err != nil {
			return err
		}
		answers := []*slicerv1.RenewSessionsResponse{{Number: q.GetNumber(), Renewal: &slicerv1.RenewSessionResponse{TtlMs: granted.Milliseconds()}}}
		if n := v.n.Add(1); v.answer != nil {
			answers = v.answer(n, q)
		}
		for _, a := range answers {
			if a == nil {
				return status.Error(codes.Unavailable, "ends")
			}
			if err := s.Send(a); err != nil {
				return err
			}
		}
	}
}

// listen serves v, and returns how a slicelet reaches it and how the server ends.
func (v *server) listen(t *testing.T, addr string) (at string, stop func()) {
	t.Helper()
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s, done := grpc.NewServer(), make(chan struct{})
	slicerv1.RegisterLeaseServiceServer(s, v)
	go func() { defer close(done); _ = s.Serve(lis) }()
	stop = sync.OnceFunc(func() { s.Stop(); <-done })
	t.Cleanup(stop)
	return lis.Addr().String(), stop
}

func session(t *testing.T, addr string) lease.ReadSession {
	t.Helper()
	conn, err := grpc.NewClient(addr, append(remote.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s, err := remote.New(conn).OpenReader(t.Context(), granted, "job")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
	return s
}

func renews(t *testing.T, s lease.ReadSession, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return s.KeepAlive(ctx)
}

// Renewals go over one stream; a server that does not know it gets calls, and is asked
// for a stream again when it may be another one.
func TestRenewalsGoOverOneStream(t *testing.T) {
	v := &server{}
	addr, _ := v.listen(t, "127.0.0.1:0")
	s := session(t, addr)
	for range 5 {
		if err := renews(t, s, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if streams, calls := v.streams.Load(), v.calls.Load(); streams != 1 || calls != 0 {
		t.Errorf("%d streams and %d calls for 5 renewals, want 1 and 0", streams, calls)
	}

	old := &server{}
	old.old.Store(true)
	addr, stop := old.listen(t, "127.0.0.1:0")
	s = session(t, addr)
	for range 3 {
		if err := renews(t, s, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if calls := old.calls.Load(); calls != 3 {
		t.Errorf("%d calls for 3 renewals at a server of an old version", calls)
	}
	stop()
	if err := renews(t, s, time.Minute); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("a renewal while there is no server: %v", err)
	}
	later := &server{}
	later.listen(t, addr)
	for renews(t, s, time.Minute) != nil && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if streams, calls := later.streams.Load(), later.calls.Load(); streams != 1 || calls != 0 {
		t.Errorf("%d streams and %d calls at the server that came after it", streams, calls)
	}
}

// A stream that broke between two renewals is begun again, and none fails.
func TestABrokenStreamIsBegunAgain(t *testing.T) {
	v := &server{answer: func(_ int64, q *slicerv1.RenewSessionsRequest) []*slicerv1.RenewSessionsResponse {
		return []*slicerv1.RenewSessionsResponse{{Number: q.GetNumber(), Renewal: &slicerv1.RenewSessionResponse{TtlMs: granted.Milliseconds()}}, nil}
	}}
	addr, _ := v.listen(t, "127.0.0.1:0")
	s := session(t, addr)
	for i := range 4 {
		if err := renews(t, s, time.Minute); err != nil {
			t.Errorf("renewal %d: %v", i, err)
		}
	}
	if n := v.streams.Load(); n != 4 {
		t.Errorf("%d streams, each of which ends after an answer, for 4 renewals", n)
	}
}

// An answer that comes too late, or once more, is never a later renewal's.
func TestAnswersAreTheirRenewals(t *testing.T) {
	hold := make(chan struct{})
	answer := func(q *slicerv1.RenewSessionsRequest, ttl time.Duration) *slicerv1.RenewSessionsResponse {
		return &slicerv1.RenewSessionsResponse{Number: q.GetNumber(), Renewal: &slicerv1.RenewSessionResponse{TtlMs: ttl.Milliseconds()}}
	}
	v := &server{answer: func(n int64, q *slicerv1.RenewSessionsRequest) []*slicerv1.RenewSessionsResponse {
		switch n {
		case 1:
			<-hold
			return []*slicerv1.RenewSessionsResponse{answer(q, 9*time.Second)}
		case 2:
			return []*slicerv1.RenewSessionsResponse{answer(q, 2*time.Second), answer(q, 8*time.Second)}
		}
		return []*slicerv1.RenewSessionsResponse{answer(q, 3*time.Second)}
	}}
	addr, _ := v.listen(t, "127.0.0.1:0")
	s := session(t, addr)
	if err := renews(t, s, 100*time.Millisecond); err == nil {
		t.Error("a renewal without an answer in time has succeeded")
	}
	close(hold)
	if err := renews(t, s, time.Minute); err != nil || s.TTL() != 2*time.Second {
		t.Errorf("the second renewal: %v, granted %s; want the 2 s of its own answer", err, s.TTL())
	}
	// It finds the second's other answer, and asks over another stream.
	if err := renews(t, s, time.Minute); err != nil || s.TTL() != 3*time.Second || v.streams.Load() != 3 {
		t.Errorf("the third renewal: %v, granted %s, over stream %d; want 3 s, over the third", err, s.TTL(), v.streams.Load())
	}
}
