package sliceletgrpc

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

// slow are credentials whose handshake takes 10 ms, and that count.
type slow struct {
	credentials.TransportCredentials
	mu        sync.Mutex
	now, most int
}

func (s *slow) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	return s.TransportCredentials.ServerHandshake(c)
}

func (s *slow) Clone() credentials.TransportCredentials { return s }

// takeMost returns the most handshakes at a time since the last call.
func (s *slow) takeMost() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.most
	s.most = 0
	return most
}

// TestListener: no more connections are set up at a time than is allowed, 2 while the task
// has no room for all, and the next begins when one stands, whether an RPC comes or not.
func TestListener(t *testing.T) {
	var full atomic.Int64
	runWith(t, Config{}, func(cfg *slicelet.Config) {
		cfg.Signals = []func() float64{func() float64 { return float64(full.Load()) }}
	}, func(b *bed) {
		t := b.t
		b.plane.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, Overload: &slicerv1.OverloadConfig{Admission: slicerv1.Admission_ADMISSION_ON}})
		b.assign(5, 0, 1)
		in := bufconn.Listen(1 << 16)
		metrics := prometheus.NewRegistry()
		lis, err := Listener(in, b.slicelet, ListenerConfig{SetUps: 8, Registerer: metrics})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Listener(in, b.slicelet, ListenerConfig{Registerer: metrics}); err == nil {
			t.Error("one registerer takes two")
		}
		creds := &slow{TransportCredentials: insecure.NewCredentials()}
		srv := grpc.NewServer(grpc.Creds(creds))
		done := make(chan error, 1)
		go func() { done <- srv.Serve(lis) }()
		defer func() {
			srv.Stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second) // no timer is left
		}()
		// come has so many clients connect, and send nothing, and returns how long it took.
		come := func(many int) time.Duration {
			began := time.Now()
			var all sync.WaitGroup
			for range many {
				conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return in.DialContext(ctx) }))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				all.Go(func() {
					conn.Connect()
					for s := conn.GetState(); s != connectivity.Ready; s = conn.GetState() {
						if !conn.WaitForStateChange(t.Context(), s) {
							return
						}
					}
				})
			}
			all.Wait()
			took := time.Since(began)
			synctest.Wait()
			return took
		}
		if took, most := come(80), creds.takeMost(); took != 100*time.Millisecond || most != 8 {
			t.Errorf("80 have connected after %s, at most %d at a time", took, most)
		}
		if err := testutil.GatherAndCompare(metrics, strings.NewReader(`
# HELP slicer_sliceletgrpc_connections_being_set_up Connections of clients that are being set up.
# TYPE slicer_sliceletgrpc_connections_being_set_up gauge
slicer_sliceletgrpc_connections_being_set_up 0
`), "slicer_sliceletgrpc_connections_being_set_up"); err != nil {
			t.Error(err)
		}
		full.Store(2)
		for range 200 { // so that there is something to refuse
			_ = b.ask(b.with(KeyHeader, keyOf(0), CriticalityHeader, "critical"), "x")
			time.Sleep(10 * time.Millisecond)
		}
		if b.slicelet.Admission().Level().Below == 0 {
			t.Fatal("the task has room")
		}
		if took, most := come(10), creds.takeMost(); took != 50*time.Millisecond || most != 2 {
			t.Errorf("10 have connected after %s while there is no room, at most %d at a time", took, most)
		}
		full.Store(0)
		time.Sleep(time.Minute)
		if took, most := come(80), creds.takeMost(); took != 100*time.Millisecond || most != 8 {
			t.Errorf("80 have connected after %s when there is room again, at most %d at a time", took, most)
		}
	})
}

func TestListenerConfig(t *testing.T) {
	var field *assignment.FieldError
	if _, err := Listener(nil, nil, ListenerConfig{SetUps: -1}); !errors.As(err, &field) || err.Error() != "set_ups: -1 is not allowed: want 0 to 65536" {
		t.Error(err)
	}
}
