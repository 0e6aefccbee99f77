package certs

import (
	"crypto/tls"
	"crypto/x509"
	"log"
	"log/slog"
	"strings"
)

// client is the config of a client's handshake; the name of the server is to be added.
func (m *material) client() *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: m.pool}
	if m.pair != nil {
		// Shown whatever authorities a server names: by it a server can log which it was.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return m.pair, nil }
	}
	return cfg
}

func (m *material) server(auth tls.ClientAuthType, protocols []string) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, ClientAuth: auth}
	if m.pair != nil {
		cfg.Certificates = []tls.Certificate{*m.pair}
	}
	if auth != tls.NoClientCert {
		cfg.ClientCAs = m.pool
	}
	return cfg
}

// ClientConfig returns what the files hold at this moment, for one handshake of a client:
// clerkhttp.Config.TLS takes it.
func (s *Source) ClientConfig() *tls.Config { return s.material().client() }

// ServerConfig returns a config for a server of net/http, with the protocols that it speaks,
// such as h2 and http/1.1. Whether clients are to show certificates, auth says; those are
// checked by the authorities, without which it has to be tls.NoClientCert.
func (s *Source) ServerConfig(auth tls.ClientAuthType, protocols ...string) *tls.Config {
	now := &each[*tls.Config]{of: func(m *material) *tls.Config { return m.server(auth, protocols) }}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now.get(s.material()), nil },
	}
}

// Leaf is the certificate that is shown to others, nil if there is none.
func (s *Source) Leaf() *x509.Certificate {
	if m := s.material(); m.pair != nil {
		return m.pair.Leaf
	}
	return nil
}

// ErrorLog returns a log for http.Server.ErrorLog, by which refused handshakes are logged and
// counted as those of gRPC servers are. All else goes to next at a level.
func (s *Source) ErrorLog(next slog.Handler, level slog.Level) *log.Logger {
	return log.New(&httpErrors{s.refused, slog.NewLogLogger(next, level)}, "", 0)
}

type httpErrors struct {
	refused *refusals
	next    *log.Logger
}

// Write takes a line of net/http's.
func (h *httpErrors) Write(line []byte) (int, error) {
	if rest, ok := strings.CutPrefix(string(line), "http: TLS handshake error from "); ok {
		if address, why, ok := strings.Cut(strings.TrimSpace(rest), ": "); ok {
			h.refused.note(address, why)
			return len(line), nil
		}
	}
	h.next.Print(string(line))
	return len(line), nil
}
