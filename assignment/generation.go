package assignment

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Generation numbers the assignments of a job, strictly increasing. 0 is none.
type Generation int64

// MaxGeneration is the last there can be: the largest whole number that every
// JSON reader takes exactly. As Unix milliseconds it is reached in the year 287396.
const MaxGeneration Generation = 1<<53 - 1

// MaxAhead is how far a stored generation may be ahead of the clock: past that a clock
// is wrong. No generation that is further ahead is taken from the network.
const MaxAhead = 24 * time.Hour

// MaxReportedAhead is how far a reported generation may be ahead of both the clock and
// the stored one to number the next one. It is little, since anything may be reported.
const MaxReportedAhead = time.Minute

// ErrAhead is matched by the errors of NextGeneration.
var ErrAhead = errors.New("generation too far ahead")

// Time is the wall time that the generation would have been made at. A
// generation made in a hurry may be a little ahead of its time.
func (g Generation) Time() time.Time { return time.UnixMilli(int64(g)) }

// NextGeneration numbers the assignment that follows the stored one, previous
// (0 if there is none): max(previous + 1, now in Unix milliseconds, reported + 1),
// where reported is the newest generation of the same store that any task or
// Distributor says it holds (0 if none). Because of the last term a store that has lost
// its newest assignments does not go backwards.
//
// What is too far ahead is refused with an error that matches ErrAhead and should raise
// an alarm:
//
//   - A report more than MaxReportedAhead ahead of both the clock and the stored
//     generation is not taken over: it would spoil every later number of the job.
//   - A stored generation more than MaxAhead ahead of the clock means that the clock
//     which made it was ahead, or that this one is behind.
//
// The number returned with such an error is good nevertheless: it follows
// previous and leaves out what was refused. So a caller may stop at the error,
// or raise the alarm and go on.
func NextGeneration(previous, reported Generation, now time.Time) (Generation, error) {
	const day, minute = Generation(MaxAhead / time.Millisecond), Generation(MaxReportedAhead / time.Millisecond)
	clock := Generation(now.UnixMilli())
	next := max(previous+1, clock)
	limit := max(previous, clock) + minute
	if reported <= limit {
		next = max(next, reported+1)
	}
	switch {
	case previous > clock+day:
		return next, aheadError("a day", "stored", previous, now)
	case reported > limit:
		return next, aheadError("a minute", "reported", reported, now)
	}
	return next, nil
}

type aheadOf struct{ text string }

func (e *aheadOf) Error() string        { return e.text }
func (e *aheadOf) Is(target error) bool { return target == ErrAhead }

func aheadError(more, whose string, g Generation, now time.Time) error {
	by := time.Duration(min(int64(g)-now.UnixMilli(), math.MaxInt64/1_000_000)) * time.Millisecond
	return &aheadOf{fmt.Sprintf("generation more than %s ahead: %s generation %d is %s ahead of the clock, %s", more, whose, g, by.Round(time.Second), now.UTC().Format(time.RFC3339))}
}
