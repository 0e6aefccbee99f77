package front

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/lease"
)

// Bounds of what one caller of LeaseService may have, so that none shuts the
// others out. A caller is the identity of its certificate, or its address (see
// limiter.KeyOf).
const (
	MaxPeerSessions       = 1 << 14 // of one caller
	MaxConnectionSessions = 256     // that have come over one connection
	MaxConnectionWatches  = 256     // at a time over one connection
)

// errFull: the caller has as much as it may.
var errFull = fmt.Errorf("%w: no more is allowed", lease.ErrUnavailable)

// errReplaced ends a watch when the session has begun another one of the job.
var errReplaced = errors.New("the session watches the job anew")

// origin is where a call comes from.
type origin struct {
	identity   string // of a verified certificate, or ""
	peer       string // the caller whose sessions are counted
	connection string
}

// originOf reads it off the connection, never off a message.
func originOf(ctx context.Context) origin {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return origin{}
	}
	o := origin{connection: p.Addr.String(), peer: "address " + limiter.KeyOf(p.Addr)}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		if o.identity = identityOf(info); o.identity != "" {
			o.peer = "identity " + o.identity
		}
	}
	return o
}

// identityOf is the first SPIFFE URI SAN of the peer's verified certificate, else
// its first DNS SAN, else "".
func identityOf(info credentials.TLSInfo) string {
	if len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return ""
	}
	cert := info.State.VerifiedChains[0][0]
	for _, u := range cert.URIs {
		if u.Scheme == "spiffe" {
			return u.String()
		}
	}
	if len(cert.DNSNames) > 0 {
		return cert.DNSNames[0]
	}
	return ""
}

// limits count what callers have. The front's lock guards it.
type limits struct {
	sessions map[string]int // by caller
	came     map[string]int // sessions, by the connection over which they came
	watches  map[string]int // by connection
}

func newLimits() limits {
	return limits{sessions: map[string]int{}, came: map[string]int{}, watches: map[string]int{}}
}

// room reports whether a caller may have another session here.
func (l limits) room(o origin) error {
	switch {
	case l.sessions[o.peer] >= MaxPeerSessions:
		return fmt.Errorf("%w: %d sessions of %s", errFull, MaxPeerSessions, o.peer)
	case l.came[o.connection] >= MaxConnectionSessions:
		return fmt.Errorf("%w: %d sessions of one connection", errFull, MaxConnectionSessions)
	}
	return nil
}

func down(counts map[string]int, key string) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}
