package run

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment/certs"
)

// TLS says how connections are secured. Without any file they are not.
type TLS struct {
	Cert, Key, CA string
	// AnyClient is set where clients need no certificate, so that CA is for servers alone.
	AnyClient bool

	source *certs.Source // once the files have been read
}

// Bind adds the flags to a command and all its subcommands.
func (t *TLS) Bind(cmd *cobra.Command) {
	fs := cmd.PersistentFlags()
	fs.StringVar(&t.Cert, "tls-cert", "", "PEM `file` with this process's certificate, shown to clients and servers alike; read again when it changes")
	fs.StringVar(&t.Key, "tls-key", "", "PEM `file` with the certificate's key; read again when it changes")
	fs.StringVar(&t.CA, "tls-ca", "", "PEM `file` with the authorities that must have signed the other side's certificate; servers then demand one from every client; read again when it changes")
}

func (t *TLS) on() bool { return t.Cert != "" || t.Key != "" || t.CA != "" }

// serves reports whether a server of this process speaks TLS.
func (t *TLS) serves() bool { return t.Cert != "" }

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
	if t.CA != "" && t.Cert == "" && !t.AnyClient {
		return Usagef("--tls-cert: missing, a server needs one to check its clients by --tls-ca")
	}
	return t.Validate()
}

// open reads the files, if there are any and that has not been done. From then on they are
// read again when they change.
func (t *TLS) open(log *slog.Logger, reg prometheus.Registerer) error {
	if !t.on() || t.source != nil {
		return nil
	}
	if err := t.Validate(); err != nil {
		return err
	}
	var err error
	t.source, err = certs.New(certs.Config{Cert: t.Cert, Key: t.Key, CA: t.CA, Logger: log, Registerer: reg})
	var file *certs.FileError
	switch {
	case errors.As(err, &file) && file.Of == certs.Authorities:
		return fmt.Errorf("--tls-ca: %w", file.Err)
	case errors.As(err, &file):
		return fmt.Errorf("--tls-cert, --tls-key: %w", file.Err)
	}
	return err
}

func (t *TLS) openServer() error {
	if err := t.validateServer(); err != nil {
		return err
	}
	return t.open(nil, nil)
}

// Server returns the credentials of a gRPC server.
func (t *TLS) Server() (credentials.TransportCredentials, error) {
	if err := t.openServer(); err != nil {
		return nil, err
	}
	if !t.serves() {
		return insecure.NewCredentials(), nil
	}
	return t.source.Server(t.demanded()), nil
}

func (t *TLS) demanded() tls.ClientAuthType {
	if t.CA == "" || t.AnyClient {
		return tls.NoClientCert
	}
	return tls.RequireAndVerifyClientCert
}

// Secure has a server of HTTP speak TLS, and log in which connections that has failed.
func (t *TLS) Secure(srv *http.Server, log *slog.Logger) error {
	if err := t.openServer(); err != nil || !t.serves() {
		return err
	}
	secure(srv, t.source, t.demanded(), log)
	return nil
}

func secure(srv *http.Server, source *certs.Source, auth tls.ClientAuthType, log *slog.Logger) {
	srv.TLSConfig = source.ServerConfig(auth, "h2", "http/1.1")
	srv.ErrorLog = source.ErrorLog(log.Handler(), slog.LevelDebug)
}

// Client returns the credentials of a gRPC client.
func (t *TLS) Client() (credentials.TransportCredentials, error) {
	if err := t.open(nil, nil); err != nil {
		return nil, err
	}
	if t.source == nil {
		return insecure.NewCredentials(), nil
	}
	return t.source.Client(), nil
}

// ClientConfig returns what makes the config of each connection of an HTTP client, nil if it
// is to do without TLS.
func (t *TLS) ClientConfig() (func() *tls.Config, error) {
	if err := t.open(nil, nil); err != nil || t.source == nil {
		return nil, err
	}
	return t.source.ClientConfig, nil
}
