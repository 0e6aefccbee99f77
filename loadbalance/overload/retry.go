package overload

import "time"

// RetryWindow is over how long a RetryBudget counts.
const RetryWindow = seconds * time.Second

const seconds = 10

// RetryLimits say how many retries there may be.
type RetryLimits struct {
	// Ratio is how many retries there may be for each request of the last RetryWindow,
	// at least 0.
	Ratio float64
	// Floor is how many there may be in FloorOver however few the requests are, so that
	// a quiet client has some. FloorOver is 1 s to RetryWindow, in whole seconds; what
	// is outside counts as the next that is allowed.
	Floor     int
	FloorOver time.Duration
}

var (
	// OtherTasks is for requests that are sent to another task, since one did not
	// answer: a tenth of the requests, or one a second if that is more (ten in any ten
	// seconds). So attempts are at most 1.1 times the requests, save for clients with
	// fewer than ten requests a second.
	OtherTasks = RetryLimits{Ratio: .1, Floor: seconds, FloorOver: RetryWindow}
	// Ownership is for requests that are sent again since the task does not own their
	// key, which costs a task little: one for each request, or 20 a second if that is
	// more. A single request that waits for the next owner takes at most 16 in its first
	// second and about 10 in each after it.
	Ownership = RetryLimits{Ratio: 1, Floor: 20, FloorOver: time.Second}
)

// RetryBudget counts a client's requests and retries, and decides whether there may be
// another retry. Times are since any moment, on a clock that does not go backwards; one
// that does is taken to stand still. It counts by whole seconds: the window is that of
// now and the nine before. It is not safe for concurrent use.
type RetryBudget struct {
	limits            RetryLimits
	now               int64 // second
	requests, retries [seconds]int
	// sums of both
	allRequests, allRetries int
}

// NewRetryBudget returns one that has counted nothing.
func NewRetryBudget(l RetryLimits) RetryBudget {
	l.FloorOver = min(max(l.FloorOver.Truncate(time.Second), time.Second), RetryWindow)
	return RetryBudget{limits: l}
}

// SetRatio changes RetryLimits.Ratio from now on. Below 0 there are no retries, however few the
// requests are.
func (b *RetryBudget) SetRatio(ratio float64) { b.limits.Ratio = ratio }

// Request counts a request, when it is sent for the first time.
func (b *RetryBudget) Request(now time.Duration) {
	b.advance(now)
	b.requests[b.now%seconds]++
	b.allRequests++
}

// Retry reports whether a request may be sent again, and counts it if it may.
func (b *RetryBudget) Retry(now time.Duration) bool {
	b.advance(now)
	if b.limits.Ratio < 0 || float64(b.allRetries+1) > b.limits.Ratio*float64(b.allRequests) && b.recent()+1 > b.limits.Floor {
		return false
	}
	b.retries[b.now%seconds]++
	b.allRetries++
	return true
}

// recent is how many retries there were in FloorOver.
func (b *RetryBudget) recent() (n int) {
	for s := range int64(b.limits.FloorOver / time.Second) {
		n += b.retries[(b.now-s+seconds)%seconds]
	}
	return n
}

// advance forgets the seconds that have left the window.
func (b *RetryBudget) advance(now time.Duration) {
	to := int64(now / time.Second)
	if to-b.now >= seconds {
		*b = RetryBudget{limits: b.limits, now: to}
		return
	}
	for b.now < to {
		b.now++
		i := b.now % seconds
		b.allRequests -= b.requests[i]
		b.allRetries -= b.retries[i]
		b.requests[i], b.retries[i] = 0, 0
	}
}
