package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/slicertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit bounds every wait; nothing is asserted on it.
const limit = waittest.Patience

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	waittest.Eventually(t, limit, what, so)
}

// server is what the sidecar stands beside. It can die, and come back at its address.
type server struct {
	t       *testing.T
	address string
	handler http.Handler
	mu      sync.Mutex
	srv     *http.Server
}

func startServer(t *testing.T, handler http.HandlerFunc) *server {
	s := &server{t: t, address: "127.0.0.1:0", handler: handler}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.t.Helper()
	lis, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.address = lis.Addr().String()
	s.srv = &http.Server{Handler: s.handler, Protocols: new(http.Protocols)}
	s.srv.Protocols.SetHTTP1(true)
	s.srv.Protocols.SetUnencryptedHTTP2(true)
	go func(srv *http.Server) { _ = srv.Serve(lis) }(s.srv)
}

func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.srv.Close()
}

// beside is a sidecar that serves.
type beside struct {
	*Sidecar
	address string
	server  *http.Server
	reg     *prometheus.Registry
}

// start starts a sidecar of a task of job web beside a server, until the test ends.
func start(t *testing.T, env *slicertest.Env, task, upstream string, change func(*Config)) *beside {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &beside{address: lis.Addr().String(), reg: prometheus.NewRegistry()}
	cfg := Config{
		Slicelet: slicelet.Config{Job: "web", Task: task, Address: b.address, Distributors: env.Distributors(), DialOptions: env.DialOptions(), Registerer: b.reg},
		Upstream: upstream, HealthEvery: 50 * time.Millisecond, MaxMessage: 4 << 20, Logger: slog.New(slog.DiscardHandler), Registerer: b.reg,
	}
	if change != nil {
		change(&cfg)
	}
	if b.Sidecar, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	if cfg.GRPC {
		go func() { defer close(done); _ = b.Serve(lis) }()
	} else {
		b.server = &http.Server{Handler: b, Protocols: new(http.Protocols)}
		b.server.Protocols.SetHTTP1(true)
		b.server.Protocols.SetUnencryptedHTTP2(true)
		go func() { defer close(done); _ = b.server.Serve(lis) }()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // without a drain
		_ = b.Drain(ctx, b.server)
		_ = lis.Close()
		<-done
	})
	return b
}

// echo says which server has got what.
func echo(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s key=%s from=%s %s", name, r.Proto, r.Method, r.URL, r.Header.Get(httpkey.HeaderKey), r.Header.Get("X-Forwarded-For"), body)
	}
}

// owner waits until one task owns all of the keyspace, or each of several some of it.
func owners(t *testing.T, c *clerk.Clerk, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprint(want, " own it"), func() bool {
		a := c.Assignment()
		if a == nil {
			return false
		}
		var got []string
		for _, r := range a.All() {
			got = append(got, r.At(0).Name)
		}
		slices.Sort(got)
		return slices.Equal(slices.Compact(got), want)
	})
}

func send(client *http.Client, url string, headers ...string) (int, string, http.Header) {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return 0, err.Error(), nil
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		r.Header.Set(k, v)
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, err.Error(), nil
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return 0, err.Error(), nil
	}
	return resp.StatusCode, string(body), resp.Header
}

func newClient(t *testing.T) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: limit}
}

// routed is a client of the job that goes by keys.
func routed(t *testing.T, c *clerk.Clerk) *http.Client {
	t.Helper()
	tr, err := clerkhttp.NewTransport(clerkhttp.Config{Clerk: c, Key: func(r *http.Request) (string, bool) { return r.URL.Query().Get("key"), true }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return &http.Client{Transport: tr, Timeout: limit}
}

// byUser finds keys in the query of paths below /users/, and byUserHeader in a header.
var (
	byUser       = front.Rules{List: []front.Rule{{Path: "/users/{id}/", Job: "web", Key: []httpkey.Source{httpkey.Query("user")}, Missing: front.Refuse}}}
	byUserHeader = front.Rules{List: []front.Rule{{Job: "web", Key: []httpkey.Source{httpkey.Header("X-User")}}}}
)
