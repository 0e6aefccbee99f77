package certs

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// maxLogged refused handshakes are logged each second; all are counted.
const maxLogged = 10

// Why a handshake came to nothing. The last two are no refusals, and are not logged: load
// balancers and probes connect and say nothing.
const (
	noCertificate    = "no_certificate"    // the client has shown none
	unknownAuthority = "unknown_authority" // none of ours has signed the client's
	expired          = "expired"           // the client's, or it is not valid yet
	badCertificate   = "bad_certificate"   // anything else about the client's
	refusedByClient  = "refused_by_client" // it does not take this process's certificate, mostly
	plainText        = "plain_text"        // the client does not speak TLS
	otherReason      = "other"             // such as versions
	closed           = "closed"            // by the client
	timeout          = "timeout"
)

// marks are texts of errors by which reasons are told, the first that fits. Some of these
// errors of crypto/tls have no type, and net/http gives texts alone.
var marks = []struct{ in, reason string }{
	{"didn't provide a certificate", noCertificate},
	{"first record does not look like a TLS handshake", plainText},
	{"client sent an HTTP request to an HTTPS server", plainText},
	{"remote error: tls:", refusedByClient},
	{"certificate has expired or is not yet valid", expired},
	{"signed by unknown authority", unknownAuthority},
	{"x509: ", badCertificate},
	{"client's certificate", badCertificate},
	{"i/o timeout", timeout},
	{"EOF", closed},
	{"connection reset by peer", closed},
	{"broken pipe", closed},
	{"use of closed network connection", closed},
}

func reasonOf(failure string) string {
	for _, m := range marks {
		if strings.Contains(failure, m.in) {
			return m.reason
		}
	}
	return otherReason
}

// refusals logs and counts handshakes that came to nothing.
type refusals struct {
	log *slog.Logger

	mu       sync.Mutex
	by       map[string]int // reason
	second   int64          // in which those were logged
	logged   int
	unlogged int // since the last one that was
}

func newRefusals(log *slog.Logger) *refusals {
	r := &refusals{log: log, by: map[string]int{closed: 0, timeout: 0, otherReason: 0}}
	for _, m := range marks {
		r.by[m.reason] = 0
	}
	return r
}

// note takes one, with the client's address.
func (r *refusals) note(address, failure string) {
	reason := reasonOf(failure)
	others, ok := r.count(reason, time.Now().Unix())
	if !ok {
		return
	}
	r.log.Warn("a TLS handshake was refused", "address", address, "reason", reason, "error", assignment.Clip(failure, 300), "others_since_the_last", others)
}

// count reports whether one is to be logged, and how many were not since the last.
func (r *refusals) count(reason string, second int64) (others int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.by[reason]++
	if reason == closed || reason == timeout {
		return 0, false
	}
	if second != r.second {
		r.second, r.logged = second, 0
	}
	if r.logged == maxLogged {
		r.unlogged++
		return 0, false
	}
	r.logged++
	others, r.unlogged = r.unlogged, 0
	return others, true
}

func (r *refusals) counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	by := make(map[string]int, len(r.by))
	for reason, n := range r.by {
		by[reason] = n
	}
	return by
}
