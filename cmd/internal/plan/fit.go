package plan

import (
	"context"
	"errors"
	"io"
	"time"
)

// enoughRounds is how many rounds a replay has by default, at least: fewer would
// mostly show how the first ones, which know of no load, went.
const enoughRounds = 100

// fit shortens the default interval to what the trace is long enough for.
func (s *simulation) fit(ctx context.Context, in *input) error {
	r, err := in.trace(ctx)
	if err != nil {
		return err
	}
	var first, last int64
	for n := 0; ; n++ {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if n == 0 {
			first, last = rec.UnixMS, rec.UnixMS
		}
		last = max(last, rec.UnixMS)
	}
	s.interval = fitting(last-first, s.interval)
	return nil
}

// spans are the intervals to choose from.
var spans = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
	10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute,
}

// fitting is the longest of spans, or most, that fits often enough into a time;
// the shortest if none does.
func fitting(spanMS int64, most time.Duration) time.Duration {
	if most.Milliseconds()*enoughRounds <= spanMS {
		return most
	}
	best := spans[0]
	for _, d := range spans {
		if d < most && d.Milliseconds()*enoughRounds <= spanMS {
			best = d
		}
	}
	return best
}
