package run_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/certs"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
)

// TestHTTPTLS: --http-tls serves metrics and probes by the process's certificate. With
// mutual, metrics are for those alone that show one, and probes for all.
func TestHTTPTLS(t *testing.T) {
	ours, others := runtest.NewAuthority(t, "ours"), runtest.NewAuthority(t, "others")
	cert, key := ours.Issue("server")
	ccert, ckey := ours.Issue("prometheus")
	ocert, okey := others.Issue("stranger")
	files := func(cert, key string) *tls.Config {
		s, err := certs.New(certs.Config{Cert: cert, Key: key, CA: ours.CA})
		if err != nil {
			t.Fatal(err)
		}
		return s.ClientConfig()
	}
	clients := map[string]*tls.Config{"any": files("", ""), "known": files(ccert, ckey), "stranger": files(ocert, okey)}
	for _, c := range []struct {
		kind, client, path string
		code               int // 0 for none
	}{
		{"server", "any", "/metrics", 200}, {"server", "any", "/healthz", 200}, {"server", "stranger", "/metrics", 200},
		{"mutual", "any", "/metrics", 403}, {"mutual", "any", "/healthz", 200}, {"mutual", "any", "/readyz", 503},
		{"mutual", "known", "/metrics", 200}, {"mutual", "known", "/healthz", 200},
		{"mutual", "stranger", "/metrics", 0}, {"mutual", "stranger", "/healthz", 0},
	} {
		log := &run.LockedBuffer{}
		f := &run.Flags{Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", HTTPTLS: c.kind, Log: run.LogFlags{Level: "info", Format: "text"}, TLS: run.TLS{Cert: cert, Key: key, CA: ours.CA}}
		p, err := run.Start("test", f, log)
		if err != nil {
			t.Fatal(err)
		}
		tr := &http.Transport{TLSClientConfig: clients[c.client], DisableKeepAlives: true}
		client := &http.Client{Transport: tr, Timeout: 10 * time.Second}
		resp, err := client.Get("https://" + p.Status.Where() + c.path)
		code, body := 0, ""
		if err == nil {
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			code, body = resp.StatusCode, string(b)
		}
		if code != c.code || (c.path == "/metrics" && code == 200) != strings.Contains(body, "slicer_tls_expiry_seconds{of=\"certificate\"}") {
			t.Errorf("%+v: %d, %v, %q", c, code, err, body)
		}
		if plain, err := http.Get("http://" + p.Status.Where() + "/healthz"); err != nil || plain.StatusCode != 400 {
			t.Errorf("%+v, in plain text: %v, %v", c, plain, err)
		} else {
			plain.Body.Close()
		}
		p.Close()
		for reason, want := range map[string]bool{"plain_text": true, "unknown_authority": c.code == 0} {
			if strings.Contains(log.String(), "reason="+reason) != want {
				t.Errorf("%+v: %s is in the log: %v, want %v", c, reason, !want, want)
			}
		}
		http.DefaultClient.CloseIdleConnections()
	}
}

// TestAuthorityRenewed: a server and a client of the programs' flags follow the file of
// --tls-ca.
func TestAuthorityRenewed(t *testing.T) {
	ours, others := runtest.NewAuthority(t, "ours"), runtest.NewAuthority(t, "others")
	cert, key := ours.Issue("server")
	server := run.TLS{Cert: cert, Key: key, CA: ours.CA}
	srv := serveTLS(t, &server)
	defer srv.Stop(nil)
	ocert, okey := others.Issue("client")
	theirs := run.TLS{CA: ours.CA, Cert: ocert, Key: okey}
	if err := reach(t, srv, theirs); err == nil {
		t.Fatal("another authority's client is served")
	}
	old, err := os.ReadFile(ours.CA)
	if err != nil {
		t.Fatal(err)
	}
	next, err := os.ReadFile(others.CA)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ours.CA, append(old, next...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := reach(t, srv, theirs); err != nil {
		t.Errorf("the file of authorities is not read again: %v", err)
	}
}
