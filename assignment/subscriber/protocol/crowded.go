package protocol

import (
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxComeBack bounds how long a server may have us stay away.
const maxComeBack = 30 * time.Second

// crowdedError says that a server is well and has too many subscribers just now.
type crowdedError struct {
	after time.Duration // when to come back
	text  string
}

func (e *crowdedError) Error() string {
	return fmt.Sprintf("crowded, come back in %s: %s", e.after, e.text)
}

// Is makes it an ErrUnavailable.
func (e *crowdedError) Is(target error) bool { return target == ErrUnavailable }

// crowded finds in the end of a stream when to come back, nil if it does not say.
func crowded(s *status.Status) error {
	for _, d := range s.Details() {
		if m, ok := d.(*slicerv1.ComeBack); ok {
			after := time.Duration(min(max(m.GetAfterMs(), 1), maxComeBack.Milliseconds())) * time.Millisecond
			return &crowdedError{after, s.Message()[:min(len(s.Message()), maxRefusal)]}
		}
	}
	return nil
}

// wait is a time to stay away for: what was asked and up to half as much again, lest
// those who were sent away together come back together.
func (e *crowdedError) wait(rng *rand.Rand) time.Duration {
	return e.after + time.Duration(rng.Int64N(int64(e.after)/2+1))
}
