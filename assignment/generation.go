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

// MaxAhead is how far a stored or reported generation may be ahead of the
// clock: past that somebody's clock is wrong, or a report is nonsense.
const MaxAhead = 24 * time.Hour

// ErrAhead is matched by the errors of NextGeneration.
var ErrAhead = errors.New("generation more than a day ahead")

// Time is the wall time that the generation would have been made at. A
// generation made in a hurry may be a little ahead of its time.
func (g Generation) Time() time.Time { return time.UnixMilli(int64(g)) }

// NextGeneration numbers the assignment that follows the stored one, previous
// (0 if there is none): max(previous + 1, now in Unix milliseconds, reported + 1),
// where reported is the newest generation that any subscriber says it holds
// (0 if none). Because of the last term a wiped store does not go backwards.
//
// Generations more than MaxAhead ahead are refused with an error that matches
// ErrAhead and should raise an alarm:
//
//   - A report that far ahead of both the clock and the stored generation is not
//     taken over: it would spoil every later number of the job.
//   - A stored generation that far ahead of the clock means that the clock which
//     made it was ahead, or that this one is behind.
//
// The number returned with such an error is good nevertheless: it follows
// previous and leaves out what was refused. So a caller may stop at the error,
// or raise the alarm and go on.
func NextGeneration(previous, reported Generation, now time.Time) (Generation, error) {
	const day = Generation(MaxAhead / time.Millisecond)
	clock := Generation(now.UnixMilli())
	next := max(previous+1, clock)
	limit := max(previous, clock) + day
	if reported <= limit {
		next = max(next, reported+1)
	}
	switch {
	case previous > clock+day:
		return next, aheadError("stored", previous, now)
	case reported > limit:
		return next, aheadError("reported", reported, now)
	}
	return next, nil
}

func aheadError(whose string, g Generation, now time.Time) error {
	by := time.Duration(min(int64(g)-now.UnixMilli(), math.MaxInt64/1_000_000)) * time.Millisecond
	return fmt.Errorf("%w: %s generation %d is %s ahead of the clock, %s", ErrAhead, whose, g, by.Round(time.Second), now.UTC().Format(time.RFC3339))
}
