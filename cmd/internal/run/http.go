package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Status is the HTTP port: /metrics for Prometheus, /healthz which answers 200
// while the process lives, and /readyz which answers 200 when it can do its
// work and otherwise 503 with the reason. Connections and scrapes under way are limited, and
// so is the time that an answer may take. All else is for the status page, if Show was given one.
type Status struct {
	ready atomic.Pointer[func() error]
	mux   *http.ServeMux
	page  atomic.Pointer[http.Handler]
	srv   *http.Server
	lis   net.Listener
	done  chan struct{}
}

// NewStatus listens on addr at once, and on nothing when addr is empty. The
// process is not ready until SetReady says how to know. It is in plain HTTP if secured is nil.
func NewStatus(addr string, reg prometheus.Gatherer, secured *StatusTLS) (*Status, error) {
	s := &Status{mux: http.NewServeMux(), done: make(chan struct{})}
	s.NotReady("starting")
	if addr == "" {
		close(s.done)
		return s, nil
	}
	var err error
	if s.lis, err = net.Listen("tcp", addr); err != nil {
		return nil, fmt.Errorf("--http: %w", err)
	}
	s.Handle("GET /metrics", secured.forKnown(limitScrapes(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))))
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	s.mux.HandleFunc("GET /readyz", s.readyz)
	s.mux.HandleFunc("GET /", s.others)
	s.srv = newHTTPServer(s.mux)
	go func() {
		defer close(s.done)
		// It returns when Close is called.
		_ = secured.serve(s.srv, limitConnections(s.lis))
	}()
	return s, nil
}

// Handle serves something more on the port, which may serve already. The pattern is one of
// http.ServeMux's.
func (s *Status) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

func newHTTPServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: writeLimit, IdleTimeout: 2 * time.Minute}
}

// Where is the address that it listens on, empty when it does not.
func (s *Status) Where() string {
	if s.lis == nil {
		return ""
	}
	return s.lis.Addr().String()
}

// Show has a status page answer for all paths that are not the port's own.
func (s *Status) Show(page http.Handler) { s.page.Store(&page) }

func (s *Status) others(w http.ResponseWriter, r *http.Request) {
	if page := s.page.Load(); page != nil {
		(*page).ServeHTTP(w, r)
		return
	}
	http.NotFound(w, r)
}

// SetReady has /readyz ask ready.
func (s *Status) SetReady(ready func() error) { s.ready.Store(&ready) }

// NotReady has /readyz answer with a reason.
func (s *Status) NotReady(why string) {
	err := errors.New(why)
	s.SetReady(func() error { return err })
}

// Ready is nil when /readyz answers that the process is ready, and else says why not.
func (s *Status) Ready() error { return (*s.ready.Load())() }

func (s *Status) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := s.Ready(); err != nil {
		http.Error(w, "not ready: "+oneLine(err.Error()), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// Close answers what has been asked, for a second at most, and ends.
func (s *Status) Close() error {
	if s.srv == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.srv.Shutdown(ctx); err != nil {
		s.srv.Close()
	}
	<-s.done
	return nil
}
