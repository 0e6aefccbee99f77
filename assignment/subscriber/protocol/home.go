package protocol

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A server in the subscriber's zone costs no traffic between zones, and lives and dies with
// the subscriber's network. So these are tried first. A subscriber that is with another one,
// since those of its zone were gone for a while, goes back when one of them is there again: it
// asks it for the job's status first, as one that looks for a Distributor that is heard does
// (see scan.go), and stays where it is until that has answered.

const (
	// homeAfter is how long a subscriber waits before it looks for a server of its zone,
	// and half as long again, or twice, so that not all return together: a zone that is back
	// may still be on its way up.
	homeAfter = time.Minute
	// homeAfterMove is the same where a server has moved the subscriber away, as it had too
	// many: the zone's other servers have what they can bear, and would move it away again.
	homeAfterMove = 30 * time.Minute
	// longestHome is the longest wait for a next look at all servers of the zone.
	longestHome = 5 * time.Minute
)

// NearFirst puts the addresses of near before the others, and returns how many they are.
func NearFirst(addrs, near []string) int {
	if len(near) == 0 {
		return 0
	}
	far := func(addr string) int {
		if slices.Contains(near, addr) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(addrs, func(a, b string) int { return far(a) - far(b) })
	n := 0
	for n < len(addrs) && far(addrs[n]) == 0 {
		n++
	}
	return n
}

// far reports whether the server is of another zone, while there are some of the
// subscriber's.
func (l *connector) far() bool { return l.near > 0 && l.next >= l.near }

// homePause is how long to wait before looking for a server of the zone.
func (l *connector) homePause(rng *rand.Rand) time.Duration {
	d := homeAfter
	if l.cameMoved {
		d = homeAfterMove
	}
	return d/2 + time.Duration(rng.Int64N(int64(d)))
}
