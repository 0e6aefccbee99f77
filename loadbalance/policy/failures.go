package policy

import (
	"math"
	"time"
)

const (
	// failuresOver is how fast failures are forgotten once a request has not failed, and
	// brokenOver until then: of a task that is chosen less there are few new ones, and it is to
	// be tried again within seconds all the same.
	failuresOver = 2 * time.Second
	brokenOver   = 10 * time.Second
	// usualRequests is how many requests that did not fail are taken for granted: a few
	// failures say little.
	usualRequests = 10
	// leastFailed is the share below which none count.
	leastFailed = .01
	// leastChosen is what a task of which all requests fail counts for at least, to others.
	leastChosen = .05
	// mostFailing is how often the least weight of those to choose among a task counts for at
	// most that fails, to begin with: else one that says a large weight, and fails, would get
	// all.
	mostFailing = 4
)

// Failures is what share of a client's requests to a task have failed lately. Times are since
// any moment. The zero value has seen none. It is not safe for concurrent use.
type Failures struct {
	all, failed float64
	at          time.Duration
	broken      bool // the last one failed
}

// Add counts a request that has ended, and returns the share.
func (f *Failures) Add(now time.Duration, failed bool) float64 {
	keep := f.keep(now)
	f.all, f.failed, f.at, f.broken = f.all*keep+1, f.failed*keep, now, failed
	if failed {
		f.failed++
	}
	return f.Share(now)
}

// Share is what share have failed lately, 0 if next to none have.
func (f *Failures) Share(now time.Duration) float64 {
	keep := f.keep(now)
	if share := f.failed * keep / (f.all*keep + usualRequests); share >= leastFailed {
		return share
	}
	return 0
}

func (f *Failures) keep(now time.Duration) float64 {
	over := failuresOver
	if f.broken {
		over = brokenOver
	}
	return math.Exp(-max(now-f.at, 0).Seconds() / over.Seconds())
}
