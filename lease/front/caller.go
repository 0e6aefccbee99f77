package front

import (
	"errors"
	"fmt"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/internal/rpc"
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
func (l limits) room(o rpc.Origin) error {
	switch {
	case l.sessions[o.Peer] >= MaxPeerSessions:
		return fmt.Errorf("%w: %d sessions of %s", errFull, MaxPeerSessions, o.Peer)
	case l.came[o.Connection] >= MaxConnectionSessions:
		return fmt.Errorf("%w: %d sessions of one connection", errFull, MaxConnectionSessions)
	}
	return nil
}

func down(counts map[string]int, key string) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}
