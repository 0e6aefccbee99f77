package assignment

import (
	"errors"
	"fmt"
	"time"
)

// Generation numbers the assignments of a job, strictly increasing. 0 is none.
type Generation int64

// MaxAhead is how far a clock or a reported generation may be ahead of the
// other before it is refused: past that somebody's clock is wrong, and taking
// it over would spoil the numbers of every later assignment.
const MaxAhead = 24 * time.Hour

// ErrAhead is matched by the errors of NextGeneration.
var ErrAhead = errors.New("generation too far ahead")

// Time is the wall time that the generation would have been made at. A
// generation made in a hurry may be a little ahead of its time.
func (g Generation) Time() time.Time { return time.UnixMilli(int64(g)) }

// NextGeneration is the number of the assignment that follows previous:
// max(previous + 1, now in Unix milliseconds, reported + 1), where reported is
// the newest generation that any subscriber says it holds. Because of the last
// term a wiped store does not go backwards.
//
// It returns an error that matches ErrAhead when reported, or previous, is more
// than MaxAhead ahead of now, or now is more than MaxAhead ahead of a previous
// that is said to have been made recently; recent is the newest generation seen
// to be made within MaxAhead on a monotonic clock, 0 if none.
func NextGeneration(previous, reported, recent Generation, now time.Time) (Generation, error) {
	limit := Generation(now.Add(MaxAhead).UnixMilli())
	switch {
	case previous > limit:
		return 0, fmt.Errorf("%w: stored generation %d is %s ahead of the clock (%s)", ErrAhead, previous, previous.Time().Sub(now).Round(time.Second), now.UTC().Format(time.RFC3339))
	case reported > limit:
		return 0, fmt.Errorf("%w: reported generation %d is %s ahead of the clock (%s)", ErrAhead, reported, reported.Time().Sub(now).Round(time.Second), now.UTC().Format(time.RFC3339))
	case recent > 0 && now.Sub(recent.Time()) > 2*MaxAhead:
		return 0, fmt.Errorf("%w: the clock (%s) is %s ahead of generation %d, made less than a day ago", ErrAhead, now.UTC().Format(time.RFC3339), now.Sub(recent.Time()).Round(time.Second), recent)
	}
	return max(previous+1, reported+1, Generation(now.UnixMilli())), nil
}
