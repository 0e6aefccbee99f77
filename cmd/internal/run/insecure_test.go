package run_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
)

// TestInsecure: plain text needs --insecure where other machines may connect.
func TestInsecure(t *testing.T) {
	ours := runtest.NewAuthority(t, "ours")
	cert, key := ours.Issue("server")
	for addr, loopback := range map[string]bool{
		"127.0.0.1:0": true, "127.8.8.8:1": true, "[::1]:0": true, "localhost:0": true, "[::ffff:127.0.0.1]:0": true,
		":0": false, "0.0.0.0:0": false, "[::]:0": false, "10.1.2.3:1": false, "[fe80::1%eth0]:1": false, "localhost.example:1": false, "web:1": false,
	} {
		f := &run.Flags{}
		err := f.CheckPlain("--listen", addr)
		var usage *run.UsageError
		if (err == nil) != loopback || err != nil && (!errors.As(err, &usage) || !strings.Contains(err.Error(), "--insecure")) {
			t.Errorf("%s: %v", addr, err)
		}
		for _, f := range []*run.Flags{{Plain: run.PlainText{Allowed: true}}, {TLS: run.TLS{Cert: cert, Key: key}}} {
			if err := f.CheckPlain("--listen", addr); err != nil {
				t.Errorf("%s with %+v: %v", addr, f, err)
			}
		}
	}
	if err := (&run.Flags{TLS: run.TLS{CA: ours.CA}}).CheckPlain("--listen", ":0"); err == nil {
		t.Error("authorities alone are taken for TLS")
	}
}

// TestInsecureLogged: --insecure is logged once, where it matters.
func TestInsecureLogged(t *testing.T) {
	for addr, lines := range map[string]int{"127.0.0.1:0": 0, "0.0.0.0:0": 1} {
		var log bytes.Buffer
		f := &run.Flags{Listen: addr, Plain: run.PlainText{Allowed: true}, Log: run.LogFlags{Level: "info", Format: "text"}}
		p, err := run.Open("test", f, &log)
		if err != nil {
			t.Fatal(err)
		}
		p.Listener.Close()
		p.Close()
		if n := strings.Count(log.String(), "level=WARN msg=\"--insecure: gRPC is served in plain text"); n != lines {
			t.Errorf("%s: %d lines: %s", addr, n, log.String())
		}
	}
}
