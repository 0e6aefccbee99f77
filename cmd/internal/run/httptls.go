package run

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/certs"
)

// What --http-tls takes.
const (
	httpPlain  = "none"
	httpServer = "server"
	httpMutual = "mutual"
)

const httpTLSUsage = "`kind` of TLS on --http, by the files of --tls-cert: none, server, or mutual, where /metrics and the status page want a certificate that --tls-ca has signed and /healthz and /readyz want none, since what probes has none to show"

// validateHTTP checks --http-tls against the files that there are.
func (f *Flags) validateHTTP() error {
	switch f.HTTPTLS {
	case "", httpPlain:
	case httpServer, httpMutual:
		if f.TLS.Cert == "" {
			return Usagef("--tls-cert: missing, --http-tls %s needs it", f.HTTPTLS)
		}
		if f.HTTPTLS == httpMutual && f.TLS.CA == "" {
			return Usagef("--tls-ca: missing, --http-tls mutual needs it")
		}
	default:
		return Usagef("--http-tls: %q is not allowed: want none, server or mutual", assignment.Clip(f.HTTPTLS, 80))
	}
	return nil
}

// StatusTLS is how the HTTP port is secured; nil is plain text.
type StatusTLS struct {
	source *certs.Source
	mutual bool
	log    *slog.Logger
}

// statusTLS returns what --http-tls says, once the files have been read.
func (f *Flags) statusTLS(log *slog.Logger) *StatusTLS {
	if f.HTTPTLS == "" || f.HTTPTLS == httpPlain {
		return nil
	}
	return &StatusTLS{f.TLS.source, f.HTTPTLS == httpMutual, log}
}

func (s *StatusTLS) serve(srv *http.Server, lis net.Listener) error {
	if s == nil {
		return srv.Serve(lis)
	}
	auth := tls.NoClientCert
	if s.mutual {
		auth = tls.VerifyClientCertIfGiven
	}
	secure(srv, s.source, auth, s.log)
	return srv.ServeTLS(lis, "", "")
}

// forKnown lets those to h alone whose certificate was verified, if that is asked for.
func (s *StatusTLS) forKnown(h http.Handler) http.Handler {
	if s == nil || !s.mutual {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "want a certificate", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
