package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment/certs/certstest"
)

// serveHTTP starts a server of net/http that demands certificates, and returns its address.
func (n *node) serveHTTP(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{
		Handler:   http.NotFoundHandler(),
		TLSConfig: n.ServerConfig(tls.RequireAndVerifyClientCert, "h2", "http/1.1"),
		ErrorLog:  n.ErrorLog(slog.DiscardHandler, slog.LevelDebug),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.ServeTLS(lis, "", "")
	}()
	t.Cleanup(func() { srv.Close(); <-done })
	return lis.Addr().String()
}

// TestRefused: whom a server of gRPC or net/http refuses is logged and counted, with why.
func TestRefused(t *testing.T) {
	ours, others := certstest.NewAuthority(t, "ours"), certstest.NewAuthority(t, "others")
	cert, key := ours.Issue("server")
	issued := 0
	issue := func(a *certstest.Authority, changes ...func(*x509.Certificate)) *node {
		issued++
		cert, key := a.Issue(fmt.Sprint("client-", issued), changes...)
		return newNode(t, cert, key, ours.CA)
	}
	serverOnly := issue(ours, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
	good := issue(ours)
	for name, c := range map[string]struct {
		client credentials.TransportCredentials
		reason string
	}{
		"none":                    {newNode(t, "", "", ours.CA).Client(), noCertificate},
		"another's":               {issue(others).Client(), unknownAuthority},
		"expired":                 {issue(ours, certstest.Expires(-time.Minute)).Client(), expired},
		"not for clients":         {serverOnly.Client(), badCertificate},
		"plain text":              {insecure.NewCredentials(), plainText},
		"another's authority":     {newNode(t, good.Cert, good.Key, others.CA).Client(), refusedByClient},
		"of an old version alone": {credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}), otherReason},
		"good":                    {good.Client(), ""},
	} {
		for kind, serve := range map[string]func(*node, *testing.T) string{"gRPC": (*node).serve, "HTTP": (*node).serveHTTP} {
			t.Run(kind+" "+name, func(t *testing.T) {
				n := newNode(t, cert, key, ours.CA)
				addr := serve(n, t)
				err := call(t.Context(), addr, grpc.WithTransportCredentials(c.client))
				if (err == nil) != (c.reason == "" && kind == "gRPC") {
					t.Errorf("the client: %v", err)
				}
				want := "reason=" + c.reason
				if c.reason == "" {
					if lines := n.log.lines("refused"); len(lines) > 0 {
						t.Error(lines)
					}
					return
				}
				for deadline := time.Now().Add(limit); len(n.log.lines(want)) == 0; time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("nothing is logged: %s", n.log.lines(""))
					}
				}
				if line := n.log.lines(want)[0]; !strings.Contains(line, "a TLS handshake was refused") || !strings.Contains(line, "address=127.0.0.1:") {
					t.Error(line)
				}
				if got := n.value(t, "slicer_tls_handshakes_failed_total", c.reason); got == 0 {
					t.Error("it is not counted")
				}
			})
		}
	}
}

// TestRefusedSilent: connections that are closed or silent are counted alone.
func TestRefusedSilent(t *testing.T) {
	ours := certstest.NewAuthority(t, "ours")
	cert, key := ours.Issue("server")
	n := newNode(t, cert, key, ours.CA)
	conn, err := net.Dial("tcp", n.serve(t))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	for deadline := time.Now().Add(limit); n.value(t, "slicer_tls_handshakes_failed_total", closed) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not counted")
		}
	}
	if lines := n.log.lines("refused"); len(lines) > 0 {
		t.Error(lines)
	}
}

// TestRefusedBound: at most ten a second are logged, and all are counted.
func TestRefusedBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newRefusals(l.logger())
		for second := range 3 {
			for i := range 25 {
				r.note(fmt.Sprintf("192.0.2.1:%d", i), "tls: client didn't provide a certificate")
			}
			lines := l.lines("reason=no_certificate")
			if len(lines) != 10*(second+1) {
				t.Fatalf("%d lines after %d s", len(lines), second)
			}
			if want := fmt.Sprintf("others_since_the_last=%d", min(second, 1)*15); !strings.Contains(lines[10*second], want) {
				t.Errorf("%s, want %s", lines[10*second], want)
			}
			time.Sleep(time.Second)
		}
		if n := r.counts()[noCertificate]; n != 75 {
			t.Errorf("%d are counted", n)
		}
		r.note("192.0.2.1:1", "x509: "+strings.Repeat("x", 10000))
		if line := l.lines("bad_certificate")[0]; len(line) > 600 {
			t.Errorf("a line of %d bytes", len(line))
		}
	})
}

// TestErrorLog: what is no handshake is left to the other log.
func TestErrorLog(t *testing.T) {
	ours := certstest.NewAuthority(t, "ours")
	n := newNode(t, "", "", ours.CA)
	rest := &logged{}
	log := n.ErrorLog(slog.NewTextHandler(rest, nil), slog.LevelInfo)
	log.Print("http: TLS handshake error from [::1]:4711: remote error: tls: bad certificate")
	log.Print("http: superfluous response.WriteHeader call")
	if lines := n.log.lines("address=[::1]:4711 reason=refused_by_client"); len(lines) != 1 {
		t.Error(n.log.text.String())
	}
	if lines := rest.lines(""); len(lines) != 1 || !strings.Contains(lines[0], "superfluous") {
		t.Error(lines)
	}
}

// TestServerChecked: a client checks a server's name or address, and its authority.
func TestServerChecked(t *testing.T) {
	ours, others := certstest.NewAuthority(t, "ours"), certstest.NewAuthority(t, "others")
	named := func(name string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{name} }
	}
	for _, c := range []struct {
		name    string
		server  *certstest.Authority
		changes []func(*x509.Certificate)
		opts    []grpc.DialOption
		ok      bool
	}{
		{"address", ours, nil, nil, true},
		{"another's authority", others, nil, nil, false},
		{"another name", ours, []func(*x509.Certificate){named("slicer.example")}, nil, false},
		{"expired", ours, []func(*x509.Certificate){certstest.Expires(-time.Minute)}, nil, false},
		{"name", ours, []func(*x509.Certificate){named("slicer.example")}, []grpc.DialOption{grpc.WithAuthority("slicer.example")}, true},
		{"address, and another name", ours, nil, []grpc.DialOption{grpc.WithAuthority("slicer.example")}, false},
	} {
		cert, key := c.server.Issue("server", c.changes...)
		addr := newNode(t, cert, key, "").serve(t)
		client := newNode(t, "", "", ours.CA)
		if err := call(t.Context(), addr, append(client.DialOptions(), c.opts...)...); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A client whose certificate was refused learns of it as of a connection that breaks, so it
// says which one it has presented.
func TestPresented(t *testing.T) {
	ours, others := certstest.NewAuthority(t, "ours"), certstest.NewAuthority(t, "others")
	cert, key := ours.Issue("server")
	addr := newNode(t, cert, key, ours.CA).serve(t)
	stranger, strangerKey := others.Issue("stranger")
	for range 20 { // it may be an alert, the end of the stream or a reset, as it happens
		err := call(t.Context(), addr, newNode(t, stranger, strangerKey, ours.CA).DialOptions()...)
		if err == nil || !strings.Contains(err.Error(), "the certificate of "+stranger+" was presented") || !strings.Contains(err.Error(), "its log says why") {
			t.Fatalf("another authority's: %v", err)
		}
		if err = call(t.Context(), addr, newNode(t, "", "", ours.CA).DialOptions()...); err == nil || !strings.Contains(err.Error(), "no certificate was presented") {
			t.Fatalf("none: %v", err)
		}
	}
	client, clientKey := ours.Issue("client")
	// The other way round the client knows why: it is what does not trust.
	if err := call(t.Context(), addr, newNode(t, client, clientKey, others.CA).DialOptions()...); err == nil || strings.Contains(err.Error(), "presented") || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a server that is not trusted: %v", err)
	}
	if err := call(t.Context(), addr, newNode(t, client, clientKey, ours.CA).DialOptions()...); err != nil {
		t.Error(err)
	}
}

// What breaks once the server has spoken was not refused.
func TestPresentedAndTaken(t *testing.T) {
	ours := certstest.NewAuthority(t, "ours")
	cert, key := ours.Issue("client")
	here, there := net.Pipe()
	c := &unheard{Conn: here, source: newNode(t, cert, key, ours.CA).Source}
	go func() {
		there.Write([]byte("x"))
		there.Close()
	}()
	if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("%v, want the error as it is", err)
	}
}
