package run_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
)

func nothing(grpc.ServiceRegistrar) {}

// reach makes a call that ends with UNIMPLEMENTED when the handshake went well.
func reach(t *testing.T, srv *run.Server, client run.TLS) error {
	t.Helper()
	creds, err := client.Client()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(srv.Addr().String(), grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = conn.Invoke(ctx, "/no.Service/Call", nil, nil)
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	return err
}

// serveTLS starts a server that lasts until it is stopped.
func serveTLS(t *testing.T, f *run.TLS) *run.Server {
	t.Helper()
	creds, err := f.Server()
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return run.Serve(lis, creds, nothing)
}

func TestTLS(t *testing.T) {
	ours, others := runtest.NewAuthority(t, "ours"), runtest.NewAuthority(t, "others")
	cert, key := ours.Issue("server")
	ccert, ckey := ours.Issue("client")
	ocert, okey := others.Issue("stranger")

	oneWay, mutual := serveTLS(t, &run.TLS{Cert: cert, Key: key}), serveTLS(t, &run.TLS{Cert: cert, Key: key, CA: ours.CA})
	defer oneWay.Stop(nil)
	defer mutual.Stop(nil)
	for _, c := range []struct {
		name   string
		srv    *run.Server
		client run.TLS
		ok     bool
	}{
		{"known server", oneWay, run.TLS{CA: ours.CA}, true},
		{"unknown server", oneWay, run.TLS{CA: others.CA}, false},
		{"plain client", oneWay, run.TLS{}, false},
		{"no client certificate", mutual, run.TLS{CA: ours.CA}, false},
		{"another's client certificate", mutual, run.TLS{CA: ours.CA, Cert: ocert, Key: okey}, false},
		{"mutual", mutual, run.TLS{CA: ours.CA, Cert: ccert, Key: ckey}, true},
	} {
		if err := reach(t, c.srv, c.client); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTLSRenewed(t *testing.T) {
	ours, others := runtest.NewAuthority(t, "ours"), runtest.NewAuthority(t, "others")
	cert, key := ours.Issue("server")
	srv := serveTLS(t, &run.TLS{Cert: cert, Key: key})
	defer srv.Stop(nil)
	replace := func(file string, data []byte, at time.Time) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	read := func(file string) []byte {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	ncert, nkey := others.Issue("server")
	replace(key, read(nkey), time.Now())
	replace(cert, read(ncert), time.Now().Add(time.Minute))
	if err := reach(t, srv, run.TLS{CA: others.CA}); err != nil {
		t.Errorf("the renewed certificate is not in use: %v", err)
	}
	replace(cert, []byte("not a certificate"), time.Now().Add(2*time.Minute))
	if err := reach(t, srv, run.TLS{CA: others.CA}); err != nil {
		t.Errorf("a bad certificate has replaced the good one: %v", err)
	}
}

func TestTLSRefused(t *testing.T) {
	ours := runtest.NewAuthority(t, "ours")
	cert, key := ours.Issue("server")
	junk := filepath.Join(t.TempDir(), "junk.pem")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		f    run.TLS
		want string
	}{
		{run.TLS{Cert: cert, Key: key, CA: junk}, "--tls-ca: " + junk + ": there is no PEM certificate"},
		{run.TLS{Cert: cert, Key: key, CA: "/nowhere"}, "--tls-ca: stat /nowhere"},
		{run.TLS{Cert: junk, Key: key}, "--tls-cert, --tls-key: "},
		{run.TLS{Cert: "/nowhere", Key: key}, "--tls-cert, --tls-key: stat /nowhere"},
	} {
		if _, err := c.f.Server(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.f, err, c.want)
		}
	}
}
