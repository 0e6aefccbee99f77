package clerkhttp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/slicer-project/slicer/assignment/certs"
	"github.com/slicer-project/slicer/assignment/certs/certstest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/internal/flight"
)

// TestTLS: each connection in TLS goes by what Config.TLS returns when it is made, and speaks
// HTTP/2. A task that is not who it is to be, or that another authority has signed, is not
// reached.
func TestTLS(t *testing.T) {
	ours, others := certstest.NewAuthority(t, "ours"), certstest.NewAuthority(t, "others")
	source := func(cfg certs.Config) *certs.Source {
		s, err := certs.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	serve := func(cfg certs.Config) (url string) {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := source(cfg)
		srv := &http.Server{
			Handler: http.NotFoundHandler(), TLSConfig: s.ServerConfig(tls.NoClientCert, "h2", "http/1.1"), ErrorLog: s.ErrorLog(slog.DiscardHandler, slog.LevelDebug),
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = srv.ServeTLS(lis, "", "")
		}()
		t.Cleanup(func() { srv.Close(); <-done })
		return "https://" + lis.Addr().String()
	}
	quiet := slog.New(slog.DiscardHandler)
	ck, err := clerk.New(clerk.Config{Job: "job", Distributors: []string{"127.0.0.1:1"}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	p := newPool(&Config{Clerk: ck, Base: DefaultBase(), TLS: source(certs.Config{CA: ours.CA, Logger: quiet}).ClientConfig}, false, new(flight.Group))
	defer p.http.CloseIdleConnections()
	get := func(url string) error {
		defer p.http.CloseIdleConnections()
		resp, err := (&http.Client{Transport: p.http}).Get(url)
		if err != nil {
			return err
		}
		if resp.ProtoMajor != 2 {
			t.Errorf("it speaks %s", resp.Proto)
		}
		return resp.Body.Close()
	}
	cert, key := ours.Issue("task")
	task := serve(certs.Config{Cert: cert, Key: key, Logger: quiet})
	if err := get(task); err != nil {
		t.Error(err)
	}
	cert, key = ours.Issue("another", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 2)} })
	var unreached clerk.Unreached
	if err := get(serve(certs.Config{Cert: cert, Key: key, Logger: quiet})); !errors.As(err, &unreached) {
		t.Errorf("a task at another's address: %v", err)
	}
	cert, key = others.Issue("task")
	foreign := serve(certs.Config{Cert: cert, Key: key, Logger: quiet})
	if err := get(foreign); !errors.As(err, &unreached) {
		t.Errorf("another authority's: %v", err)
	}
	next, err := os.ReadFile(others.CA)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ours.CA, next, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := get(foreign); err != nil {
		t.Errorf("when it is known: %v", err)
	}
	if err := get(task); !errors.As(err, &unreached) {
		t.Errorf("the authority before: %v", err)
	}
}
