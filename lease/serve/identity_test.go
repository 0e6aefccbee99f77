package serve_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"testing"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true})
	return a
}

func (a *authority) sign(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		a.t.Fatal(err)
	}
	return c, key
}

// config is a process's, with a certificate of these names.
func (a *authority) config(spiffe string, dns ...string) *tls.Config {
	a.t.Helper()
	c := &x509.Certificate{DNSNames: dns}
	if spiffe != "" {
		u, err := url.Parse(spiffe)
		if err != nil {
			a.t.Fatal(err)
		}
		c.URIs = []*url.URL{{Scheme: "https", Host: "not.an.identity"}, u}
	}
	cert, key := a.sign(c)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
		RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, ServerName: "slicer"}
}

// With TLS a session is its identity's: another one that has come by its name can
// do nothing with it, the same one with a new certificate all.
func TestSessionIsTheIdentitys(t *testing.T) {
	a := newAuthority(t)
	s := open(t, &memory{}, nil)
	defer s.Close()
	lead(t, s, "job")
	addr := served(t, s, grpc.Creds(credentials.NewTLS(a.config("", "slicer"))))
	client := func(cfg *tls.Config) slicerv1.LeaseServiceClient {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return slicerv1.NewLeaseServiceClient(conn)
	}
	for _, x := range []struct {
		name            string
		holder, rotated *tls.Config
		others          []*tls.Config
	}{
		{"spiffe", a.config("spiffe://corp/cache/task/a", "a.corp"), a.config("spiffe://corp/cache/task/a", "elsewhere.corp"),
			[]*tls.Config{a.config("spiffe://corp/cache/task/b", "a.corp"), a.config("", "a.corp"), a.config("")}},
		{"dns", a.config("", "a.corp", "b.corp"), a.config("", "a.corp"),
			[]*tls.Config{a.config("", "b.corp", "a.corp"), a.config("spiffe://corp/cache/task/a", "a.corp"), a.config("")}},
	} {
		t.Run(x.name, func(t *testing.T) {
			session := openSession(t, client(x.holder), time.Minute, "job").GetSession()
			for i, cfg := range x.others {
				for call, err := range everyCall(t.Context(), client(cfg), session, "job") {
					if wantCode(t, call, err, codes.NotFound); t.Failed() {
						t.Fatalf("identity %d", i)
					}
				}
			}
			if _, err := client(x.rotated).RenewSession(t.Context(), &slicerv1.RenewSessionRequest{Session: session}); err != nil {
				t.Errorf("the same identity with another certificate: %v", err)
			}
		})
	}
}
