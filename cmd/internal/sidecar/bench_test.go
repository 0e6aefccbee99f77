package sidecar

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"
	"time"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/slicertest"
)

// BenchmarkHandler is one request after the other through a sidecar's handler to a server on
// loopback, httputil's own proxy beside it.
func BenchmarkHandler(b *testing.B) {
	answer := []byte("hello")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(answer) }))
	defer srv.Close()
	address := srv.Listener.Addr().String()
	base := clerkhttp.DefaultBase()
	base.DisableCompression = true
	defer base.CloseIdleConnections()
	plain := &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = "http", address
			pr.SetXForwarded()
		},
		Transport: base, BufferPool: new(front.Buffers),
	}
	env := slicertest.Start()
	defer env.Close()
	s, err := New(Config{
		Slicelet: slicelet.Config{Job: "web", Task: "a", Address: "127.0.0.1:1", Distributors: env.Distributors(), DialOptions: env.DialOptions()},
		Upstream: address, HealthEvery: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	for c := env.Clerk(clerk.Config{Job: "web"}); s.Ready() != nil || c.Assignment() == nil; {
		time.Sleep(time.Millisecond)
	}
	for _, h := range []struct {
		name string
		http.Handler
	}{{"plain", plain}, {"sidecar", s}} {
		b.Run(h.name, func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequest("GET", "/users/x", nil)
			for k, v := range map[string]string{"Slicer-Key": "user/4711", "Slicer-Generation": "1", "User-Agent": "bench", "Accept": "*/*"} {
				r.Header.Set(k, v)
			}
			for b.Loop() {
				w := &discard{header: http.Header{}}
				h.ServeHTTP(w, r)
				if w.code != 200 {
					b.Fatal(w.code)
				}
			}
		})
	}
	if err := s.Drain(b.Context(), new(http.Server)); err != nil {
		b.Error(err)
	}
}

// discard is an answer that is not read.
type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(code int)        { d.code = code }
func (d *discard) Write(p []byte) (int, error) { return io.Discard.Write(p) }
