package limiter

import (
	"sync"
	"time"

	"github.com/slicer-project/slicer/distributor/limiter/fair"
)

// Rate allows so many a second for each key, and some more at once after a rest. All
// methods are safe for concurrent use.
type Rate struct {
	mu   sync.Mutex // taken after any other
	fair *fair.Rate
}

// NewRate makes one that allows one each interval, and burst at once.
func NewRate(interval time.Duration, burst int) *Rate {
	return &Rate{fair: fair.NewRate(interval, burst)}
}

// Allow reports whether a key may once more, and takes that into account.
func (r *Rate) Allow(now time.Time, key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fair.Allow(now, key)
}

// GiveBack takes one Allow back.
func (r *Rate) GiveBack(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fair.GiveBack(key)
}
