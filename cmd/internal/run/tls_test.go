package run_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
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
)

// authority signs certificates for tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	CA   string
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t, dir: t.TempDir(), key: newKey(t)}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.CA = a.write(name+".pem", "CERTIFICATE", der)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) write(name, kind string, der []byte) string {
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// issue makes a certificate for 127.0.0.1 and returns its files.
func (a *authority) issue(name string) (cert, key string) {
	k := newKey(a.t)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name+".crt", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", kder)
}

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

func TestTLS(t *testing.T) {
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	cert, key := ours.issue("server")
	ccert, ckey := ours.issue("client")
	ocert, okey := others.issue("stranger")

	serve := func(f run.TLS) *run.Server {
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
	oneWay, mutual := serve(run.TLS{Cert: cert, Key: key}), serve(run.TLS{Cert: cert, Key: key, CA: ours.CA})
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
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	cert, key := ours.issue("server")
	creds, err := (&run.TLS{Cert: cert, Key: key}).Server()
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := run.Serve(lis, creds, nothing)
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
	ncert, nkey := others.issue("server")
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
	ours := newAuthority(t, "ours")
	cert, key := ours.issue("server")
	junk := filepath.Join(t.TempDir(), "junk.pem")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		f    run.TLS
		want string
	}{
		{run.TLS{Cert: cert, Key: key, CA: junk}, "--tls-ca: " + junk + " holds no PEM certificate"},
		{run.TLS{Cert: cert, Key: key, CA: "/nowhere"}, "--tls-ca: open /nowhere"},
		{run.TLS{Cert: junk, Key: key}, "--tls-cert, --tls-key: "},
		{run.TLS{Cert: "/nowhere", Key: key}, "--tls-cert, --tls-key: stat /nowhere"},
	} {
		if _, err := c.f.Server(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.f, err, c.want)
		}
	}
}
