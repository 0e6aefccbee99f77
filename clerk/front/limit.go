package front

import (
	"cmp"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// Limit is how many requests of a rule a proxy lets through; the zero value limits nothing.
// It is each proxy's own, however many there are. What is above it is refused at once, by 429
// or RESOURCE_EXHAUSTED, and no task hears of it.
type Limit struct {
	// Rate is requests a second, above 0 and at most MaxRate, 0 for any. A second's worth
	// may come at once, three requests at the least, of which the less critical leave some to
	// the others, as with the limits of customers (overload.Bucket).
	Rate float64
	// UnderWay is requests at a time, 1 to MaxUnderWay, 0 for any: each from its first
	// byte until its answer has ended.
	UnderWay int
}

// Bounds of a Limit.
const (
	MaxRate     = 1e6
	MaxUnderWay = 1_000_000
)

// limiter holds requests to a Limit.
type limiter struct {
	limit Limit

	mu       sync.Mutex
	bucket   overload.Bucket
	underWay int
}

// epoch is where the times of buckets count from.
var epoch = time.Now()

func newLimiter(limit Limit) (*limiter, error) {
	switch {
	case !(limit.Rate >= 0 && limit.Rate <= MaxRate):
		return nil, &assignment.FieldError{Field: "rate", Value: limit.Rate, Allowed: fmt.Sprintf("0 to %d", int(MaxRate))}
	case limit.UnderWay < 0 || limit.UnderWay > MaxUnderWay:
		return nil, &assignment.FieldError{Field: "under_way", Value: limit.UnderWay, Allowed: fmt.Sprintf("0 to %d", MaxUnderWay)}
	case limit == Limit{}:
		return nil, nil
	}
	l := &limiter{limit: limit}
	l.bucket.SetRate(time.Since(epoch), limit.Rate, 1)
	return l, nil
}

// LimitError is that of a request that the rule's Limit does not let through.
type LimitError struct {
	Job string
	Limit
	// Rated: Rate is to blame, else UnderWay.
	Rated bool
}

func (e *LimitError) Error() string {
	if e.Rated {
		return fmt.Sprintf("the proxy lets %g requests a second through to job %q here, and there are more", e.Rate, e.Job)
	}
	return fmt.Sprintf("the proxy lets %d requests at a time through to job %q here, and there are more", e.UnderWay, e.Job)
}

// Enter lets a request through, of which Leave is to be called then, or returns a
// *LimitError. byDefault is how critical it is if the rule does not say.
func (m *Matcher) Enter(r *http.Request, byDefault overload.Criticality) error {
	l := m.limiter
	if l == nil {
		return nil
	}
	c := cmp.Or(m.Labels(r).Criticality, byDefault)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit.UnderWay > 0 && l.underWay >= l.limit.UnderWay {
		return &LimitError{Job: m.Job, Limit: l.limit}
	}
	if l.limit.Rate > 0 && !l.bucket.Take(time.Since(epoch), c, 1) {
		return &LimitError{Job: m.Job, Limit: l.limit, Rated: true}
	}
	l.underWay++
	return nil
}

// Leave is for a request that has ended.
func (m *Matcher) Leave() {
	if l := m.limiter; l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.underWay--
	}
}
