package limiter

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/limiter/fair"
)

// unknownNames a second may come from one client of which no store is known to have a
// job, and unknownBurst at once: after a start the names of all jobs are unknown.
const unknownNames, unknownBurst = 10, 100

// Names limits how many names of jobs that no store is known to have a client may ask
// for. All methods are safe for concurrent use.
type Names struct {
	mu   sync.Mutex // taken after any other
	rate *fair.Rate
}

// NewNames makes one.
func NewNames() *Names {
	return &Names{rate: fair.NewRate(time.Second/unknownNames, unknownBurst)}
}

// Ask counts a name that a client asks for. The error is RESOURCE_EXHAUSTED if there
// were too many. The key "" is not limited.
func (n *Names) Ask(now time.Time, key, job string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if key == "" || n.rate.Allow(now, key) {
		return nil
	}
	return status.Errorf(codes.ResourceExhausted, "job %q: it is not known here, and %s has asked for other names that are not: %d a second are allowed, and %d at once", job, key, unknownNames, unknownBurst)
}

// Known takes an Ask back: there is such a job.
func (n *Names) Known(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rate.GiveBack(key)
}
