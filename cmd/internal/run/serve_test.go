package run_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestStatus(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "slicer_test"}, func() float64 { return 3 }))
	s, err := run.NewStatus("127.0.0.1:0", reg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	base := "http://" + s.Where()
	check := func(path string, code int, body string) {
		t.Helper()
		if c, b := get(t, base+path); c != code || !strings.Contains(b, body) {
			t.Errorf("%s: %d %q, want %d %q", path, c, b, code, body)
		}
	}
	check("/healthz", 200, "ok")
	check("/readyz", 503, "not ready: starting")
	check("/metrics", 200, "slicer_test 3")
	check("/nothing", 404, "")
	s.SetReady(func() error { return nil })
	check("/readyz", 200, "ready")
	s.SetReady(func() error { return errors.New("no\nassigner") })
	check("/readyz", 503, "not ready: no; assigner\n")

	if _, err := run.NewStatus(s.Where(), reg, nil); err == nil || !strings.Contains(err.Error(), "--http: listen tcp "+s.Where()) || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a port in use: %v", err)
	}
	if none, err := run.NewStatus("", reg, nil); err != nil || none.Where() != "" || none.Close() != nil {
		t.Errorf("no HTTP port wanted: %v", err)
	}
}

// waiter is a service whose one stream lasts until the service is closed.
type waiter struct {
	closed  chan struct{}
	entered chan struct{}
}

func (w *waiter) register(r grpc.ServiceRegistrar) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Waiter", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Wait", ServerStreams: true, Handler: func(any, grpc.ServerStream) error {
			close(w.entered)
			<-w.closed
			return status.Error(codes.Unavailable, "closed")
		}}},
	}, w)
}

func TestStopEndsStreams(t *testing.T) {
	lis, err := run.Listen("--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Listen("--listen", lis.Addr().String()); err == nil || !strings.HasPrefix(err.Error(), "--listen: listen tcp "+lis.Addr().String()) {
		t.Errorf("a port in use: %v", err)
	}
	w := &waiter{make(chan struct{}), make(chan struct{})}
	s := run.Serve(lis, insecure.NewCredentials(), w.register)
	conn, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, "/test.Waiter/Wait")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	<-w.entered
	if err := s.Stop(func() error { close(w.closed); return nil }); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := stream.RecvMsg(nil); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
	<-s.Ending().Done
	if _, err := net.DialTimeout("tcp", s.Addr().String(), time.Second); err == nil {
		t.Error("the port is still open")
	}
}

func TestProcess(t *testing.T) {
	var log strings.Builder
	f := &run.Flags{Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Log: run.LogFlags{Level: "info", Format: "text"}}
	p, err := run.Start("test", f, &log)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, body := get(t, "http://"+p.Status.Where()+"/metrics"); !strings.Contains(body, `slicer_build_info{program="test"`) || !strings.Contains(body, "go_goroutines") {
		t.Errorf("metrics:\n%s", body)
	}
	full := errors.New("the disk is full")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	closed := make(chan struct{})
	close(closed)
	failed := run.Ending{Done: closed, Err: func() error { return full }}
	other := run.Ending{Done: make(chan struct{})}
	if err := p.Wait(ctx, func() error { return nil }, other, failed); !errors.Is(err, full) {
		t.Errorf("Wait, when the store has failed: %v", err)
	}
	cancel()
	if err := p.Wait(ctx, func() error { return full }, other); !errors.Is(err, full) {
		t.Errorf("Wait, when stopping fails: %v", err)
	}
	if err := p.Wait(ctx, func() error { return nil }, other); err != nil {
		t.Errorf("Wait, after a signal: %v", err)
	}
	if code, body := get(t, "http://"+p.Status.Where()+"/readyz"); code != 503 || !strings.Contains(body, "stopping") {
		t.Errorf("readyz: %d %s", code, body)
	}
}

// A signal may come as soon as the port is open: a server that is stopped before it
// serves has stopped in order.
func TestStoppedBeforeItServes(t *testing.T) {
	lis, err := run.Listen("--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := run.Serve(lis, insecure.NewCredentials(), func(r grpc.ServiceRegistrar) { r.(*grpc.Server).Stop() })
	if err := s.Stop(nil); err != nil {
		t.Errorf("Stop: %v", err)
	}
}
