package daemon_test

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/slicer-project/slicer/assigner"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
)

func slicerctl(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run.Execute(t.Context(), ctl.New(), args, strings.NewReader("name: web\n"), &o, &e)
	return code, o.String(), e.String()
}

// TestMutualTLS: an assigner, the program distributor and slicerctl speak with each other
// by certificates of one authority, and no other program does with them.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	ours, others := runtest.NewAuthority(t, "ours"), runtest.NewAuthority(t, "others")
	flags := func(a *runtest.Authority, name string) []string {
		cert, key := a.Issue(name)
		return []string{"--tls-ca=" + ours.CA, "--tls-cert=" + cert, "--tls-key=" + key}
	}

	cert, key := ours.Issue("assigner")
	creds, err := (&run.TLS{Cert: cert, Key: key, CA: ours.CA}).Server()
	if err != nil {
		t.Fatal(err)
	}
	db, err := pebblestore.Open(t.TempDir(), pebblestore.Config{Timeout: waittest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := lis.Addr().String()
	a, err := assigner.New(assigner.Config{ID: "a0", Address: addr, Stores: []assigner.NamedStore{{Backend: db}}})
	if err != nil {
		t.Fatal(err)
	}
	srv := run.Serve(lis, creds, a.Register, assigner.ServerOptions()...)
	defer func() {
		if err := errors.Join(srv.Stop(a.Close), db.Close()); err != nil {
			t.Error(err)
		}
	}()

	d := runtest.Start(t, "distributor", append(flags(ours, "distributor"), "--assigners="+addr, "--listen=127.0.0.1:0", "--http=127.0.0.1:0")...)
	w := d.Where()
	becomesReady(t, w["http"])

	server := "--server=" + w["listen"]
	if code, out, errs := slicerctl(t, append(flags(ours, "operator"), server, "job", "apply", "-f", "-")...); code != 0 || out != "job web created (version 1)\n" {
		t.Errorf("apply: exit %d, %q, %q", code, out, errs)
	}
	for name, f := range map[string][]string{
		"no certificate":        {"--tls-ca=" + ours.CA},
		"another's certificate": flags(others, "stranger"),
		"no TLS":                {},
		"another's authority":   {"--tls-ca=" + others.CA},
	} {
		code, out, errs := slicerctl(t, append(f, server, "--timeout=5s", "job", "list")...)
		if code != 4 || out != "" || strings.Count(errs, "\n") != 1 || strings.Contains(errs, "rpc error") {
			t.Errorf("%s: exit %d, %q, %q", name, code, out, errs)
		}
		switch name {
		case "no certificate":
			if !strings.Contains(errs, "no certificate was presented") || !strings.Contains(errs, "--tls-cert") {
				t.Errorf("%s: %s", name, errs)
			}
		case "another's certificate":
			if !strings.Contains(errs, "stranger.crt was presented: if the server has refused it, its log says why") {
				t.Errorf("%s: %s", name, errs)
			}
		}
		t.Logf("%s: %s", name, errs)
	}
	d.Stop(syscall.SIGTERM)
}
