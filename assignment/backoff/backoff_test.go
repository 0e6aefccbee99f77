package backoff_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment/backoff"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !backoff.Sleep(t.Context(), time.Second) || time.Since(began) != time.Second {
			t.Error("waited for", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		if backoff.Sleep(ctx, time.Hour) || time.Since(began) != time.Minute {
			t.Error("did not end with its context, but after", time.Since(began))
		}
		if backoff.Sleep(ctx, 0) {
			t.Error("an ended context lasts")
		}
	})
}

func TestJitter(t *testing.T) {
	const d = 100
	for name, c := range map[string]struct {
		f        func(time.Duration) time.Duration
		min, max time.Duration
	}{
		"Jitter": {backoff.Jitter, d / 2, d},
		"About":  {backoff.About, d / 2, 3 * d / 2},
	} {
		least, most := time.Duration(d), time.Duration(0)
		for range 10_000 {
			got := c.f(d)
			least, most = min(least, got), max(most, got)
		}
		if least != c.min || most != c.max {
			t.Errorf("%s of %d: %d to %d, want %d to %d", name, d, least, most, c.min, c.max)
		}
		if c.f(0) != 0 || c.f(-d) != 0 {
			t.Errorf("%s of nothing: %s, %s", name, c.f(0), c.f(-d))
		}
	}
}
