package daemon_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
)

// guard is mutual TLS in front of an etcd.
type guard struct {
	t    *testing.T
	lis  net.Listener
	etcd string
	wg   sync.WaitGroup

	mu      sync.Mutex
	config  *tls.Config
	serials map[string]bool // of the certificates that clients have shown since the last cut
	conns   []net.Conn
}

func newGuard(t *testing.T, etcd string) *guard {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &guard{t: t, lis: lis, etcd: etcd}
	g.wg.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			g.wg.Go(func() { g.serve(c) })
		}
	})
	t.Cleanup(func() {
		lis.Close()
		g.cut()
		g.wg.Wait()
	})
	return g
}

// by has it show a certificate of an authority, and trust that alone.
func (g *guard) by(a *runtest.Authority) {
	g.t.Helper()
	pair, err := tls.LoadX509KeyPair(a.Issue("etcd"))
	if err != nil {
		g.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.config = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, NextProtos: []string{"h2"}}
}

// cut ends all connections.
func (g *guard) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		c.Close()
	}
	g.conns, g.serials = nil, map[string]bool{}
}

func (g *guard) serve(raw net.Conn) {
	g.mu.Lock()
	c := tls.Server(raw, g.config)
	g.conns = append(g.conns, c)
	g.mu.Unlock()
	defer c.Close()
	if c.Handshake() != nil {
		return
	}
	to, err := net.Dial("tcp", g.etcd)
	if err != nil {
		return
	}
	defer to.Close()
	g.mu.Lock()
	g.serials[c.ConnectionState().PeerCertificates[0].SerialNumber.String()] = true
	g.conns = append(g.conns, to)
	g.mu.Unlock()
	g.wg.Go(func() {
		io.Copy(to, c)
		to.Close()
	})
	io.Copy(c, to)
}

// shown reports whether a client has shown a certificate since the last cut.
func (g *guard) shown(serial string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.serials[serial]
}

// TestStoreTLS: the files in a store's URL are read again when they have changed, authorities
// too, and the metrics tell of them.
func TestStoreTLS(t *testing.T) {
	t.Parallel()
	g := newGuard(t, etcdtest.NewCluster(t, 1).Endpoints()[0])
	ours, next := runtest.NewAuthority(t, "ours"), runtest.NewAuthority(t, "next")
	g.cut()
	g.by(ours)
	cert, key := ours.Issue("slicer")
	serialOf := func(file string) string {
		t.Helper()
		pair, err := tls.LoadX509KeyPair(file, strings.TrimSuffix(file, ".crt")+".key")
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.SerialNumber.String()
	}
	url := "etcd://" + g.lis.Addr().String() + "/slicer?ca=" + ours.CA + "&cert=" + cert + "&key=" + key
	p := runtest.Start(t, "assigner", "--store="+url, "--listen=127.0.0.1:0", "--http=127.0.0.1:0")
	w := p.Where()
	becomesReady(t, w["http"])
	first := serialOf(cert)
	until(t, "it has shown its certificate", func() bool { return g.shown(first) })
	for _, want := range []string{`slicer_tls_expiry_seconds{of="certificate for the store"}`, `slicer_tls_stale{of="authorities for the store"} 0`} {
		if _, body := get(t, "http://"+w["http"]+"/metrics"); !strings.Contains(body, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}

	ours.Issue("slicer") // in the same files
	g.cut()
	until(t, "it shows the new certificate", func() bool { return g.shown(serialOf(cert)) })
	becomesReady(t, w["http"])

	// Another authority, of etcd and of the client.
	renewed, renewedKey := next.Issue("slicer")
	for to, from := range map[string]string{cert: renewed, key: renewedKey, ours.CA: next.CA} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	g.by(next)
	p.Signal(syscall.SIGHUP)
	until(t, "it says what it has read", func() bool { return strings.Contains(p.Text(), `"msg":"authorities for the store read again"`) })
	g.cut()
	until(t, "it shows the certificate of the new authority", func() bool { return g.shown(serialOf(renewed)) })
	becomesReady(t, w["http"])
	p.Stop(syscall.SIGTERM)
}
