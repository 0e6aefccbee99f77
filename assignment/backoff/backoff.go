// Package backoff waits between attempts.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d, and reports whether ctx still lasts.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Jitter is between half of d and d: what has failed at once is not tried again at once.
// A d below 0 counts as 0.
func Jitter(d time.Duration) time.Duration { d = max(d, 0); return d/2 + rand.N(d/2+1) }

// About is between half of d and one and a half of it: d on average.
// A d below 0 counts as 0.
func About(d time.Duration) time.Duration { d = max(d, 0); return d/2 + rand.N(d+1) }
