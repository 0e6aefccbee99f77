package clerkhttp

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// BenchmarkProxy is one request after the other through a proxy's handler to a
// server on loopback, ours and httputil's own beside it.
func BenchmarkProxy(b *testing.B) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	answer := []byte("hello")
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(answer) })}
	go func() { _ = srv.Serve(lis) }()
	defer srv.Close()
	base := DefaultBase()
	base.DisableCompression = true
	var bufs front.Buffers
	plain := &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = "http", lis.Addr().String()
			pr.Out.Host = pr.In.Host
			pr.SetXForwarded()
		},
		Transport: base, BufferPool: &bufs,
	}
	defer base.CloseIdleConnections()

	network := subscribertest.NewNetwork()
	server := network.Start(distributor)
	defer server.Stop()
	task := subscribertest.Task("t", 0)
	task.Address = lis.Addr().String()
	server.Put(subscribertest.Equal(b, nil, assignment.Header{Job: "job", StoreID: 1, Generation: 1}, []assignment.Task{task}, 0, 0, 0, 0))
	proxy, err := NewProxy(ProxyConfig{
		Rules:  Rules{List: []Rule{{Host: "other.test", Job: "job"}, {Path: "/users/", Job: "job", Key: []httpkey.Source{httpkey.Header("X-User")}}}},
		Policy: policy.LeastLoaded,
		Clerk: func(job string) (*clerk.Clerk, error) {
			return clerk.New(clerk.Config{Job: job, Distributors: []string{distributor}, DialOptions: network.DialOptions()})
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer proxy.Close()
	for _, h := range []struct {
		name string
		http.Handler
	}{{"plain", plain}, {"slicer", proxy}} {
		b.Run(h.name, func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequest("GET", "/users/x", nil)
			r.Header.Set("X-User", "user/4711")
			r.Header.Set("User-Agent", "bench")
			r.Header.Set("Accept", "*/*")
			for b.Loop() {
				w := &discard{header: http.Header{}}
				h.ServeHTTP(w, r)
				if w.code != 200 {
					b.Fatal(w.code)
				}
			}
		})
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
