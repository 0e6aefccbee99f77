package serve_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/serve"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// durations is a lookup of lease durations that a test may change.
type durations struct {
	mu   sync.Mutex
	jobs map[string]time.Duration
}

func (d *durations) look(_ context.Context, job string) (serve.Terms, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.jobs[job] < 0 {
		return serve.Terms{}, errors.New("the record is damaged")
	}
	return serve.Terms{LeaseTime: d.jobs[job]}, nil
}

func (d *durations) set(job string, to time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs[job] = to
}

// openFor opens a store that knows these jobs.
func openFor(t *testing.T, m *memory, clock func() time.Duration, d *durations, fresh bool) *serve.Store {
	t.Helper()
	s, err := serve.Open(t.Context(), serve.Config{Storage: m, Terms: d.look, Fresh: fresh, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// served serves a store on loopback and returns its address.
func served(t testing.TB, s *serve.Store, opts ...grpc.ServerOption) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(opts...)
	s.Register(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(lis); err != nil {
			t.Errorf("Serve: %v", err)
		}
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	return lis.Addr().String()
}

// connect opens a connection of its own, from another address if one is given.
func connect(t testing.TB, addr, from string) *grpc.ClientConn {
	t.Helper()
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if from != "" {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return d.DialContext(ctx, "tcp", to) }))
	}
	conn, err := grpc.NewClient(addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// lead opens an assigner's session and brings generation 1 of a job in force.
func lead(t *testing.T, s *serve.Store, job string) (lease.WriteSession, lease.Token) {
	t.Helper()
	w, err := s.OpenWriter(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	token, err := w.Lead(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lease.Advance(t.Context(), w, lease.Change{Job: job, Token: token, Wanted: 1}); err != nil {
		t.Fatal(err)
	}
	return w, token
}

func openSession(t *testing.T, c slicerv1.LeaseServiceClient, ttl time.Duration, jobs ...string) *slicerv1.OpenSessionResponse {
	t.Helper()
	resp, err := c.OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: ttl.Milliseconds(), Jobs: jobs})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}
