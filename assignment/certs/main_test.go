package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slicer-project/slicer/assignment/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit bounds every wait; nothing is asserted on it.
const limit = waittest.Patience

// logged is a log that can be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// lines are those so far that have the text.
func (l *logged) lines(with string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, with) {
			found = append(found, line)
		}
	}
	return found
}

// node is a process's source, with what it logs and measures.
type node struct {
	*Source
	Config
	log *logged
	reg *prometheus.Registry
}

func newNode(t *testing.T, cert, key, ca string) *node {
	t.Helper()
	n := &node{log: &logged{}, reg: prometheus.NewRegistry()}
	n.Config = Config{Cert: cert, Key: key, CA: ca, Logger: n.log.logger(), Registerer: n.reg}
	var err error
	if n.Source, err = New(n.Config); err != nil {
		t.Fatal(err)
	}
	return n
}

// value is that of a metric with a label's value.
func (n *node) value(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := n.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && m.Label[0].GetValue() == label {
				if f.GetType() == dto.MetricType_COUNTER {
					return m.GetCounter().GetValue()
				}
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s of %s", name, label)
	return 0
}

// serve starts a gRPC server with a health service and returns its address.
func (n *node) serve(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	auth := tls.RequireAndVerifyClientCert
	if n.CA == "" {
		auth = tls.NoClientCert
	}
	srv := grpc.NewServer(grpc.Creds(n.Server(auth)))
	healthv1.RegisterHealthServer(srv, health.NewServer())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(lis); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { srv.Stop(); <-done })
	return lis.Addr().String()
}

// call makes a connection, and a call on it.
func call(ctx context.Context, addr string, opts ...grpc.DialOption) error {
	conn, err := grpc.NewClient(addr, opts...)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	return err
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace puts data in a file's place in one step, as what renews certificates does.
func replace(t *testing.T, file string, data []byte) {
	t.Helper()
	write(t, file+".new", data)
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
