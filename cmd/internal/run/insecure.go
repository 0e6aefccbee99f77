package run

import (
	"log/slog"
	"net"
	"strings"

	"github.com/slicer-project/slicer/assignment"
)

// PlainText is what may be served without TLS.
type PlainText struct {
	Allowed bool     // by --insecure: gRPC where other machines may connect
	at      []string // addresses where it is
	// PageNames are those of --http-names; nil for commands that have no such flag.
	PageNames []string
}

// CheckPlain refuses an address to serve gRPC on in plain text, unless only this machine can
// reach it or --insecure was given, of which Start then logs a warning. Of a name it is not
// asked what it stands for: localhost alone is sure to stay what it is.
func (f *Flags) CheckPlain(flag, addr string) error {
	switch {
	case f.TLS.serves() || isLoopback(addr):
		return nil
	case !f.Plain.Allowed:
		return Usagef("%s: %q is not allowed in plain text, since other machines may reach it: set --tls-cert, --tls-key and --tls-ca, or --insecure to serve what connects all the same", flag, assignment.Clip(addr, 80))
	}
	f.Plain.at = append(f.Plain.at, addr)
	return nil
}

func (p *PlainText) warn(log *slog.Logger) {
	if len(p.at) > 0 {
		log.Warn("--insecure: gRPC is served in plain text, and what reaches the port may do everything", "listen", strings.Join(p.at, ", "))
	}
}

// isLoopback reports whether no other machine can reach what listens at host:port.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
