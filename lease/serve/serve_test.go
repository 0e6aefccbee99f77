package serve_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/leasetest"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/lease/serve"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) {
	waittest.SideBySide()
	goleak.VerifyTestMain(m)
}

// memory is storage that outlives a store, and can be made to fail.
type memory struct {
	mu      sync.Mutex
	records map[string][]byte
	fail    error
}

func (m *memory) Load(context.Context) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.records), nil
}

func (m *memory) Put(_ context.Context, records map[string][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	if m.records == nil {
		m.records = map[string][]byte{}
	}
	maps.Copy(m.records, records)
	return nil
}

func open(t *testing.T, m *memory, clock func() time.Duration) *serve.Store {
	t.Helper()
	s, err := serve.Open(t.Context(), serve.Config{Storage: m, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformanceInProcess(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, func(t *testing.T) leasetest.Store {
		s := open(t, &memory{}, nil)
		t.Cleanup(func() { s.Close() })
		return leasetest.Store{Readers: s, Writers: s, Suspender: s, TTL: 2 * time.Second}
	})
}

// dial serves a store on loopback and connects to it.
func dial(t *testing.T, s *serve.Store) *grpc.ClientConn {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	s.Register(server)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(lis); err != nil {
			t.Errorf("Serve: %v", err)
		}
	}()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		<-served
	})
	return conn
}

func TestConformanceOverGRPC(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, func(t *testing.T) leasetest.Store {
		s := open(t, &memory{}, nil)
		t.Cleanup(func() { s.Close() })
		return leasetest.Store{Readers: remote.New(dial(t, s)), Writers: s, Suspender: s, TTL: 2 * time.Second}
	})
}

// bubble gives a clock of virtual time.
func bubble(t *testing.T, test func(t *testing.T, clock func() time.Duration)) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		test(t, func() time.Duration { return time.Since(start) })
	})
}

func TestNothingIsGrantedUntilAllLeasesHavePassed(t *testing.T) {
	bubble(t, func(t *testing.T, clock func() time.Duration) {
		m := &memory{}
		first := open(t, m, clock)
		long, err := first.OpenReader(t.Context(), time.Minute, "job")
		if err != nil {
			t.Fatal(err)
		}
		w, err := first.OpenWriter(t.Context(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		token, err := w.Lead(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			st, _ := w.State(t.Context(), "job")
			if err := w.Commit(t.Context(), "job", token, st, lease.Next(st, 7)); err != nil {
				t.Fatal(err)
			}
		}
		if _, ok, err := long.Acquire(t.Context(), "job", lease.GuardClaim(7)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := first.Close(); err != nil { // as kill -9 would leave it: a session is open
			t.Fatal(err)
		}

		second := open(t, m, clock)
		defer second.Close()
		for _, wait := range []time.Duration{0, 59 * time.Second} {
			time.Sleep(wait)
			if _, err := second.OpenReader(t.Context(), time.Second, "job"); !errors.Is(err, lease.ErrUnavailable) {
				t.Errorf("a session was opened %s after the restart: %v", clock(), err)
			}
			w, err := second.OpenWriter(t.Context(), time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Lead(t.Context(), "job"); !errors.Is(err, lease.ErrUnavailable) {
				t.Errorf("an assigner leads %s after the restart: %v", clock(), err)
			}
		}
		time.Sleep(time.Second)
		w, err = second.OpenWriter(t.Context(), time.Second)
		if err != nil {
			t.Fatalf("after all of it: %v", err)
		}
		next, err := w.Lead(t.Context(), "job")
		if err != nil || next <= token {
			t.Errorf("Lead: %d, %v; want a token above %d", next, err, token)
		}
		st, err := w.State(t.Context(), "job")
		if want := (lease.Records{Head: 7, Guard: lease.Guard{Generation: 7, Open: true}}); err != nil || st.Records != want {
			t.Errorf("after the restart the records are %+v, %v; want %+v", st.Records, err, want)
		}
	})
}

func TestOldHoldersAreRefused(t *testing.T) {
	m := &memory{}
	first := open(t, m, nil)
	ask := &slicerv1.OpenSessionRequest{TtlMs: 1000, Jobs: []string{"job"}}
	n, err := slicerv1.NewLeaseServiceClient(dial(t, first)).OpenSession(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, m, nil)
	defer second.Close()
	client := slicerv1.NewLeaseServiceClient(dial(t, second))
	_, err = client.RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: n.GetSession()})
	if status.Code(err) != codes.NotFound {
		t.Errorf("renewing a session of before the restart: %v", err)
	}
	_, err = client.OpenSession(t.Context(), ask)
	if status.Code(err) != codes.Unavailable {
		t.Errorf("opening a session right after the restart: %v", err)
	}
}

func TestCleanCloseStartsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, clock func() time.Duration) {
		m := &memory{}
		first := open(t, m, clock)
		n, err := first.OpenReader(t.Context(), time.Minute, "job")
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		second := open(t, m, clock)
		defer second.Close()
		if _, err := second.OpenReader(t.Context(), time.Second, "job"); err != nil {
			t.Errorf("no session was left, and none is granted: %v", err)
		}
	})
}

func TestLongestLeaseIsDurableBeforeItIsGranted(t *testing.T) {
	m := &memory{}
	s := open(t, m, nil)
	defer s.Close()
	m.mu.Lock()
	m.fail = errors.New("no space left")
	m.mu.Unlock()
	if _, err := s.OpenReader(t.Context(), time.Second, "job"); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("a lease was granted that is not on record: %v", err)
	}
	if _, err := s.OpenReader(t.Context(), time.Second, "job"); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("a store that cannot write grants leases: %v", err)
	}
}

func TestCorruptRecordsAreNamed(t *testing.T) {
	for key, text := range map[string]string{
		"lease/epoch": "7", "lease/longest": "\xff\xff\xff\xff\xff\xff\xff\xff", "lease/job/a/head": "x", "lease/job/a/guard": "1",
		"lease/job/a/bridge": "2 1 open", "lease/job/a/other": "", "lease/what": "",
	} {
		_, err := serve.Open(t.Context(), serve.Config{Storage: &memory{records: map[string][]byte{key: []byte(text)}}})
		if !errors.Is(err, lease.ErrCorrupt) {
			t.Errorf("%s = %q: %v", key, text, err)
		}
	}
}

func TestMalformedRequests(t *testing.T) {
	s := open(t, &memory{}, nil)
	defer s.Close()
	client := slicerv1.NewLeaseServiceClient(dial(t, s))
	ctx := t.Context()
	for what, call := range map[string]func() error{
		"ttl 0": func() error {
			_, err := client.OpenSession(ctx, &slicerv1.OpenSessionRequest{Jobs: []string{"a"}})
			return err
		},
		"no jobs": func() error {
			_, err := client.OpenSession(ctx, &slicerv1.OpenSessionRequest{TtlMs: 1000})
			return err
		},
		"65 jobs": func() error {
			_, err := client.OpenSession(ctx, &slicerv1.OpenSessionRequest{TtlMs: 1000, Jobs: strings.Split(strings.Repeat("a ", 64)+"a", " ")})
			return err
		},
		"ttl -1": func() error {
			_, err := client.OpenSession(ctx, &slicerv1.OpenSessionRequest{TtlMs: -1 << 62, Jobs: []string{"a"}})
			return err
		},
		"ttl big": func() error {
			_, err := client.OpenSession(ctx, &slicerv1.OpenSessionRequest{TtlMs: 1<<63 - 1, Jobs: []string{"a"}})
			return err
		},
		"no claim": func() error {
			_, err := client.AcquireClaim(ctx, &slicerv1.AcquireClaimRequest{Job: "a"})
			return err
		},
		"claim backwards": func() error {
			_, err := client.ReleaseClaim(ctx, &slicerv1.ReleaseClaimRequest{Job: "a", Claim: &slicerv1.Claim{From: 2, To: 1}})
			return err
		},
		"job with a slash": func() error {
			_, err := client.AcquireClaim(ctx, &slicerv1.AcquireClaimRequest{Job: "a/b", Claim: &slicerv1.Claim{To: 1}})
			return err
		},
		"watch without a job": func() error {
			stream, err := client.WatchRecords(ctx, &slicerv1.WatchRecordsRequest{})
			if err != nil {
				return err
			}
			_, err = stream.Recv()
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
}
