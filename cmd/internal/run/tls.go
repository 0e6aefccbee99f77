package run

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// TLS says how gRPC connections are secured. Without any file they are not.
type TLS struct {
	Cert, Key, CA string

	pair *keyPair // that of a process which rereads it; else nil
}

func (t *TLS) keyPair() *keyPair {
	if t.pair != nil {
		return t.pair
	}
	return &keyPair{cert: t.Cert, key: t.Key}
}

// Bind adds the flags to a command and all its subcommands.
func (t *TLS) Bind(cmd *cobra.Command) {
	fs := cmd.PersistentFlags()
	fs.StringVar(&t.Cert, "tls-cert", "", "PEM `file` with this process's certificate, shown to clients and servers alike; read again when it changes")
	fs.StringVar(&t.Key, "tls-key", "", "PEM `file` with the certificate's key")
	fs.StringVar(&t.CA, "tls-ca", "", "PEM `file` with the authorities that must have signed the other side's certificate; servers then demand one from every client")
}

func (t *TLS) on() bool { return t.Cert != "" || t.Key != "" || t.CA != "" }

// Validate names the flag that is missing.
func (t *TLS) Validate() error {
	switch {
	case t.Cert != "" && t.Key == "":
		return Usagef("--tls-key: missing, --tls-cert needs it")
	case t.Key != "" && t.Cert == "":
		return Usagef("--tls-cert: missing, --tls-key needs it")
	}
	return nil
}

func (t *TLS) validateServer() error {
	if t.CA != "" && t.Cert == "" {
		return Usagef("--tls-cert: missing, a server needs one to check its clients by --tls-ca")
	}
	return t.Validate()
}

// Server returns the credentials of a gRPC server.
func (t *TLS) Server() (credentials.TransportCredentials, error) {
	cfg, err := t.ServerConfig()
	if err != nil {
		return nil, err
	}
	return credentialsOf(cfg), nil
}

func credentialsOf(cfg *tls.Config) credentials.TransportCredentials {
	if cfg == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(cfg)
}

// ServerConfig is what a server needs, nil if it is to do without TLS.
func (t *TLS) ServerConfig() (*tls.Config, error) {
	if !t.on() {
		return nil, nil
	}
	if err := t.validateServer(); err != nil {
		return nil, err
	}
	pair := t.keyPair()
	if _, err := pair.get(); err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.get() },
	}
	if t.CA != "" {
		pool, err := loadCA(t.CA)
		if err != nil {
			return nil, err
		}
		cfg.ClientCAs, cfg.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	return cfg, nil
}

// Client returns the credentials of a gRPC client.
func (t *TLS) Client() (credentials.TransportCredentials, error) {
	cfg, err := t.ClientConfig()
	if err != nil {
		return nil, err
	}
	return credentialsOf(cfg), nil
}

// ClientConfig is what a client needs, nil if it is to do without TLS.
func (t *TLS) ClientConfig() (*tls.Config, error) {
	if !t.on() {
		return nil, nil
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pool, err := loadCA(t.CA)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = pool
	}
	if t.Cert != "" {
		pair := t.keyPair()
		if _, err := pair.get(); err != nil {
			return nil, err
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.get() }
	}
	return cfg, nil
}

func loadCA(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca: %s holds no PEM certificate", file)
	}
	return pool, nil
}

// keyPair reads a certificate anew when its file has changed, so that it can be
// renewed under a running process. A bad new one leaves the old one in use.
type keyPair struct {
	cert, key string

	mu      sync.Mutex
	loaded  *tls.Certificate
	changed time.Time
}

func (k *keyPair) get() (*tls.Certificate, error) {
	cert, err := k.load(false)
	if err != nil && cert != nil {
		return cert, nil
	}
	return cert, err
}

// load reads the files if that of the certificate has changed, or if it must. On an
// error it returns what is in use, if anything is.
func (k *keyPair) load(must bool) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	st, err := os.Stat(k.cert)
	if err == nil && k.loaded != nil && !must && st.ModTime().Equal(k.changed) {
		return k.loaded, nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.LoadX509KeyPair(k.cert, k.key)
	}
	if err != nil {
		return k.loaded, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	k.loaded, k.changed = &pair, st.ModTime()
	return k.loaded, nil
}
