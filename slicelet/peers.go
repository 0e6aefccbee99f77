package slicelet

import (
	"sync/atomic"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

const (
	// standsForEach is for how many others requests of a peer may stand for each that it sends:
	// at ten times what a task can do clients hold back nine of ten.
	standsForEach = 10
	// requestsEach is of how many requests of a peer one may be a retry, and mostRetries how
	// many retries in a row, after as many requests as allow them.
	requestsEach = 10
	mostRetries  = 10
)

// peers bounds what those that requests come from say of requests that they do not send, or
// have sent before, by what they do send. Peers with the same remainder share what they may say,
// so that it takes no memory for each. The zero value has seen none. It is safe for concurrent
// use.
type peers [256]struct{ standsFor, again atomic.Int32 }

// arrived counts a request.
func (p *peers) arrived(peer uint64) {
	if may := &p[peer%uint64(len(p))].standsFor; may.Load() < overload.MostStandsFor {
		may.Add(standsForEach)
	}
}

// standsFor returns for how many others a request may stand of those that it says.
func (p *peers) standsFor(peer uint64, says int) int {
	may := &p[peer%uint64(len(p))].standsFor
	for {
		left := may.Load()
		n := min(int32(says), left)
		if n <= 0 {
			return 0
		}
		if may.CompareAndSwap(left, left-n) {
			return int(n)
		}
	}
}

// attempt counts an attempt, and reports whether it counts as a retry if it says to be one.
func (p *peers) attempt(peer uint64, retry bool) bool {
	may := &p[peer%uint64(len(p))].again
	left := may.Load()
	if left < requestsEach*mostRetries {
		left = may.Add(1)
	}
	if !retry || left < requestsEach {
		return false
	}
	may.Add(-requestsEach)
	return true
}
