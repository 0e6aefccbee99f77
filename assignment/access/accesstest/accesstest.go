// Package accesstest has certificates and policies for tests of who may do what: an authority
// of a test's own, peers with the identities that the test chooses, and rights of a policy.
package accesstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/enforce"
)

// Authority signs certificates for TLS between loopback addresses. It is safe for
// concurrent use.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// Pool has the authority's own certificate.
	Pool *x509.CertPool
}

// New makes an authority of its own.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t), Pool: x509.NewCertPool()}
	a.cert = a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, &a.key.PublicKey)
	a.Pool.AddCert(a.cert)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *Authority) sign(c, parent *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	a.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.NotAfter = serial, time.Now().Add(time.Hour)
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return made
}

// Issue makes a certificate, good for an hour, for both ends of a connection between loopback
// addresses. Its identity is a SPIFFE id, or none where id is empty.
func (a *Authority) Issue(id string) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	c := &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}
	if id != "" {
		u, err := url.Parse(id)
		if err != nil {
			a.t.Fatal(err)
		}
		c.URIs = []*url.URL{u}
	}
	return tls.Certificate{Certificate: [][]byte{a.sign(c, a.cert, &key.PublicKey).Raw}, PrivateKey: key}
}

// ServerTLS is for a server with that identity, which verifies the certificates of its peers
// if they have one.
func (a *Authority) ServerTLS(id string) *tls.Config {
	a.t.Helper()
	return &tls.Config{Certificates: []tls.Certificate{a.Issue(id)}, ClientCAs: a.Pool, ClientAuth: tls.VerifyClientCertIfGiven}
}

// Server is ServerTLS for gRPC.
func (a *Authority) Server(id string) credentials.TransportCredentials {
	a.t.Helper()
	return credentials.NewTLS(a.ServerTLS(id))
}

// ClientTLS is for a client with that identity.
func (a *Authority) ClientTLS(id string) *tls.Config {
	a.t.Helper()
	cfg := &tls.Config{RootCAs: a.Pool}
	if id != Nobody {
		cfg.Certificates = []tls.Certificate{a.Issue(id)}
	}
	return cfg
}

// This client has no certificate.
const Nobody = "no certificate"

// Client is ClientTLS for gRPC.
func (a *Authority) Client(id string) credentials.TransportCredentials {
	a.t.Helper()
	return credentials.NewTLS(a.ClientTLS(id))
}

// Files are where a program finds a certificate, its key and the authority's certificate.
type Files struct{ Cert, Key, CA string }

// Files writes a certificate as Issue makes it into a folder of the test's.
func (a *Authority) Files(id string) Files {
	a.t.Helper()
	dir := a.t.TempDir()
	f := Files{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")}
	a.Rewrite(f, id, a)
	return f
}

// Rewrite puts another certificate into files, and the certificates of those authorities.
func (a *Authority) Rewrite(f Files, id string, trusted ...*Authority) {
	a.t.Helper()
	made := a.Issue(id)
	key, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		a.t.Fatal(err)
	}
	var cas []byte
	for _, t := range trusted {
		cas = append(cas, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: t.cert.Raw})...)
	}
	for path, data := range map[string][]byte{
		f.Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate[0]}),
		f.Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		f.CA:   cas,
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// Policy reads a policy.
func Policy(t testing.TB, text string) *access.Policy {
	t.Helper()
	p, err := access.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Rights are those of a policy; without a text they have none. The logger may be nil.
func Rights(t testing.TB, text string, log *slog.Logger) *enforce.Rights {
	t.Helper()
	cfg := enforce.Config{Logger: log}
	if text != "" {
		cfg.Policy = Policy(t, text)
	}
	r, err := enforce.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
