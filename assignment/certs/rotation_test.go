package certs

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slicer-project/slicer/assignment/certs/certstest"
)

// TestRotation replaces certificates and the authority of a server and its clients while
// clients connect without a pause: no call fails, and streams go on.
func TestRotation(t *testing.T) {
	old, next := certstest.NewAuthority(t, "old"), certstest.NewAuthority(t, "next")
	dir := t.TempDir()
	issue := func(a *certstest.Authority, name string) (cert, key []byte) {
		c, k := a.Issue(name)
		return read(t, c), read(t, k)
	}
	install := func(name string) *node {
		at := filepath.Join(dir, name)
		cert, key := issue(old, name)
		write(t, at+".crt", cert)
		write(t, at+".key", key)
		write(t, at+".ca", read(t, old.CA))
		return newNode(t, at+".crt", at+".key", at+".ca")
	}
	server, client := install("server"), install("client")
	addr := server.serve(t)
	ocert, okey := old.Issue("outdated")
	outdated := newNode(t, ocert, okey, old.CA)

	conn, err := grpc.NewClient(addr, client.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := healthv1.NewHealthClient(conn).Watch(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := stream.Recv(); ended <- err }()

	// Each result is of one connection.
	results := make(chan error)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for ctx.Err() == nil {
				err := call(ctx, addr, client.DialOptions()...)
				select {
				case results <- err:
				case <-ctx.Done():
				}
			}
		})
	}
	connections, failed := 0, 0
	under := func(what string, change func()) {
		change()
		for range 16 {
			connections++
			if err := <-results; err != nil {
				failed++
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	under("nothing", func() {})
	for _, n := range []*node{server, client} {
		cert, key := issue(old, "renewed")
		under("a certificate whose key has not come", func() { write(t, n.Cert, cert) })
		under("its key", func() { write(t, n.Key, key) })
	}
	both := append(bytes.Clone(read(t, old.CA)), read(t, next.CA)...)
	for _, n := range []*node{server, client} {
		under("both authorities", func() { replace(t, n.CA, both) })
	}
	for _, n := range []*node{client, server} {
		cert, key := issue(next, "of the next authority")
		under("a key whose certificate has not come", func() { replace(t, n.Key, key) })
		under("its certificate", func() { replace(t, n.Cert, cert) })
	}
	if err := call(ctx, addr, append(outdated.DialOptions(), grpc.WithAuthority("127.0.0.1"))...); err == nil {
		t.Error("a client that does not know the next authority takes its certificate")
	}
	for _, n := range []*node{server, client} {
		under("the next authority alone", func() { replace(t, n.CA, read(t, next.CA)) })
	}
	write(t, outdated.CA, read(t, next.CA))
	if err := call(ctx, addr, outdated.DialOptions()...); err == nil {
		t.Error("the server takes a certificate of the authority that is gone")
	}
	for deadline := time.Now().Add(limit); server.value(t, "slicer_tls_handshakes_failed_total", unknownAuthority) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("that is not counted")
		}
	}
	select {
	case err := <-ended:
		t.Errorf("the stream has ended: %v", err)
	default:
	}
	cancel()
	workers.Wait()
	<-ended
	for _, n := range []*node{server, client} {
		if got := len(n.log.lines("certificate read again")); got < 2 {
			t.Errorf("%d lines on certificates: %s", got, n.log.text.String())
		}
		if got := len(n.log.lines("authorities read again")); got != 2 {
			t.Errorf("%d lines on authorities", got)
		}
		// Errors are of files that do not fit, or have been written in part.
		for _, line := range n.log.lines("level=ERROR") {
			if !strings.Contains(line, "private key does not match public key") && !strings.Contains(line, "failed to find any PEM data") {
				t.Error(line)
			}
		}
	}
	t.Logf("%d connections, %d failed", connections, failed)
}
