package policy

import (
	"math"
	"time"
)

const (
	// Blackout is how long a task must have reported before its weight counts: the
	// first reports of a task that warms up mislead. (gRPC's default is 10 s, gRFC A58, in
	// which a task that fails at once or is slow is not seen to be.) Expiry is how old the
	// last report may be, which is gRPC's default.
	Blackout = 2 * time.Second
	Expiry   = 3 * time.Minute
	// Penalty is by how much errors count against a task (gRFC A58).
	Penalty = 1.0
)

// Report is what a task says about itself: an ORCA load report.
type Report struct {
	// Utilization is the share of the task's capacity that is in use. It is more
	// than 0, and may exceed 1; otherwise there is no report.
	Utilization float64
	// Requests and Errors are rates, per second, of requests that were served and of
	// those that failed. (gRFC A58 counts errors among the requests: then a task that
	// fails at once, which costs it little, weighs the more the more it fails.)
	Requests, Errors float64
}

// leastServed is what share of the requests that failed a task counts as serving at
// least, so that one that serves nothing gets few requests and not the mean, and some
// all the same, by which it is found to have recovered.
const leastServed = .01

// Weight is the share of the requests that the task should get, relative to
// others: the requests that it would carry at full utilization,
// requests / (utilization + Penalty * errors / requests), where requests are at least
// a hundredth of errors. It is 0 if the report says nothing.
func (r Report) Weight() float64 {
	errors := max(r.Errors, 0)
	requests := max(r.Requests, leastServed*errors)
	if !(r.Utilization > 0) || !(requests > 0) {
		return 0
	}
	w := requests / (r.Utilization + Penalty*errors/requests)
	if !(w > 0) || math.IsInf(w, 0) {
		return 0
	}
	return w
}

// Utilization follows the reports of one task. Times are on a clock of the
// user's that does not go backwards. The zero value has none.
type Utilization struct {
	weight      float64
	since, last time.Duration
}

// leastUtilization is what a task must use for its report to say what it can carry: below
// it, most of what it uses may be what it needs without any request, so that its weight would
// follow the requests that it happens to get, and these the weight.
const leastUtilization = .1

// Report takes a report into account. One that says nothing is passed over, and one of a task
// that has little to do says that what was known still holds.
func (u *Utilization) Report(now time.Duration, r Report) {
	w := r.Weight()
	switch {
	case w == 0:
		return
	case r.Utilization < leastUtilization && !(r.Errors > 0):
		if u.weight > 0 && now-u.last < Expiry {
			u.last = now
		}
		return
	}
	if u.weight == 0 || now-u.last >= Expiry {
		u.since = now
	}
	u.weight, u.last = w, now
}

// Weight is for Candidate: 0, which is not known, in the first Blackout of
// reports and when the last is older than Expiry.
func (u *Utilization) Weight(now time.Duration) float64 {
	if u.weight == 0 || now-u.last >= Expiry || now-u.since < Blackout {
		return 0
	}
	return u.weight
}
