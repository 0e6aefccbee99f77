package protocol

import (
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxRetryAfter bounds the time for which a server may ask a subscriber to stay away.
const maxRetryAfter = 30 * time.Second

// movedAwayError is the end of a stream by a Distributor that is well and moves the
// subscriber to another one.
type movedAwayError struct {
	after time.Duration // how long to stay away
	text  string
}

func (e *movedAwayError) Error() string {
	return fmt.Sprintf("moved away, retry after %s: %s", e.after, e.text)
}

// Is makes it an ErrUnavailable.
func (e *movedAwayError) Is(target error) bool { return target == ErrUnavailable }

// movedAway finds in the end of a stream how long to stay away, nil if it does not say.
func movedAway(s *status.Status) error {
	for _, d := range s.Details() {
		if m, ok := d.(*slicerv1.RetryAfter); ok {
			after := time.Duration(min(max(m.GetAfterMs(), 1), maxRetryAfter.Milliseconds())) * time.Millisecond
			return &movedAwayError{after, s.Message()[:min(len(s.Message()), maxRefusal)]}
		}
	}
	return nil
}

// wait is how long to stay away: the time that was asked for and up to half as much
// again, so that subscribers that were moved away together do not return together.
func (e *movedAwayError) wait(rng *rand.Rand) time.Duration {
	return e.after + time.Duration(rng.Int64N(int64(e.after)/2+1))
}
