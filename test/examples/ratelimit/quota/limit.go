// Package quota is the arithmetic of a rate limit that many frontends share: what each
// may let in by itself, and how the owner of the limit divides it. It has no clock, no
// lock and no network; time is passed in, as what has passed since some fixed moment.
//
// A Bucket is the owner's: a token bucket that fills at the limit's rate. A Share is one
// frontend's part of it: a smaller token bucket, which fills at the part of the rate
// that the owner has lent it, and from which it lets requests in without asking. Once an
// Interval it reports what it has let in and how much is asked of it, and the answer is
// its next part.
//
// The Bucket keeps an account of each Share: what that may have let in since its last
// report, at most. It lends rates whose sum is at most the limit's, and tokens only that
// are in no account. So what all Shares let in together is bounded by what the Bucket
// would have let in, without a decision by the Bucket.
package quota

import (
	"math"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// The times of the protocol. They are the same in all frontends and owners.
const (
	// Interval is how often a Share that is in use reports.
	Interval = 500 * time.Millisecond
	// IdleAfter is for how long nothing has to be asked of a Share until it gives its part back.
	IdleAfter = 2 * time.Second
	// ReclaimAfter is how long an owner waits for a report until it lends a Share's part to
	// others. It is above IdleAfter and an Interval, so that only a frontend that has died, or
	// is cut off, loses its part in this way.
	ReclaimAfter = 3 * time.Second
	// LearnFor is for how long the owner of a limit whose last owner has died confirms parts
	// rather than change them: until all frontends have reported.
	LearnFor = 3 * Interval
)

const (
	// countsFor is over how many requests a Share measures the demand, within shortest and
	// longest, and surprise how many standard deviations of a count are a change of demand.
	countsFor = 20
	shortest  = 200 * time.Millisecond
	longest   = 3 * time.Second
	surprise  = 3
	// fewest is how many tokens a Share may hold at least, and atOnce for how long the rate
	// fills what all may hold at least: with less, tokens are lost when requests come unevenly.
	fewest = 2
	atOnce = 200 * time.Millisecond
	// repay is the time constant by which the rate is lowered after too much was let in.
	repay = 4 * time.Second
	// learnPart is what part of the rate a Share that has none gets while the owner learns.
	learnPart = .05
)

// Limit is what is allowed.
type Limit struct {
	// Rate is in requests a second, 0.001 to 1e9.
	Rate float64
	// Burst is how many requests may come at once after a while without any, 1 to 1e9.
	Burst float64
}

// Validate returns a *assignment.FieldError for the first field that is not allowed.
func (l Limit) Validate() error {
	if !(l.Rate >= 1e-3 && l.Rate <= 1e9) {
		return &assignment.FieldError{Field: "rate", Value: l.Rate, Allowed: "0.001 to 1e9 a second"}
	}
	if !(l.Burst >= 1 && l.Burst <= 1e9) {
		return &assignment.FieldError{Field: "burst", Value: l.Burst, Allowed: "1 to 1e9"}
	}
	return nil
}

// capacity is what a Bucket of so many Shares holds. Where there are several it has to hold
// what some have not used until others can: as they learn of it with their next report,
// an Interval's worth, and about a token in each Share.
func (l Limit) capacity(shares int) float64 {
	if shares <= 1 {
		return max(l.Burst, l.Rate*atOnce.Seconds(), fewest)
	}
	return max(l.Burst, l.Rate*Interval.Seconds(), fewest*float64(shares))
}

// Report is what a Share tells the owner.
type Report struct {
	Limit Limit
	// Demand is how much is asked of the Share, in requests a second; 0 gives its part back.
	Demand float64
	// Rate is the part that it has, 0 if none, and Tokens what it may let in at once, which
	// is negative after it has let in too much.
	Rate, Tokens float64
	// Total is what it has let in since it was made, and Fresh since its last report that
	// was answered.
	Total, Fresh uint64
}

// Valid reports whether a report can be one of a Share.
func (r Report) Valid() bool {
	return r.Limit.Validate() == nil && finite(r.Demand) && r.Demand >= 0 && finite(r.Rate) && r.Rate >= 0 && finite(r.Tokens)
}

// Answer is a Share's next part.
type Answer struct {
	// Rate is how fast the Share's tokens grow, Cap up to how many, and Tokens how many it
	// had when it sent the report. With Rate and Cap 0 it has no part.
	Rate, Tokens, Cap float64
	// Soon asks for the next report before an Interval has passed: others still have what is
	// to be the Share's.
	Soon bool
	// Shared says that other Shares have a part, so that reports of no use at all count.
	Shared bool
}

// Valid reports whether an answer can be one of a Bucket.
func (a Answer) Valid() bool {
	return finite(a.Rate) && a.Rate >= 0 && finite(a.Tokens) && finite(a.Cap) && a.Cap >= 0
}

func finite(x float64) bool { return math.Abs(x) <= 1e12 }
