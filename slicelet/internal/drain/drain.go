// Package drain is what the adapters' drains have in common: how the time that is
// left is divided.
package drain

import (
	"context"
	"errors"
	"time"

	"github.com/slicer-project/slicer/slicelet"
)

const (
	// Timeout bounds a drain whose context has no deadline.
	Timeout = time.Minute
	// maxReserve bounds how much of the time that is left a drain keeps for requests
	// that are being served, which is a quarter.
	maxReserve = 10 * time.Second
)

// Run moves the task's slices away, has stop end the server, which it does by the end
// of its context, and closes the slicelet. The error is the first of theirs; that
// there is no task to move slices to is none. A ctx without a deadline gets one after
// Timeout; the slices get what stop is not reserved.
func Run(ctx context.Context, s *slicelet.Slicelet, stop func(ctx context.Context) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, Timeout)
		defer cancel()
	}
	err := slices(ctx, s)
	if errors.Is(err, slicelet.ErrAlone) {
		err = nil // logged; all that could be done is done
	}
	if stopped := stop(ctx); err == nil {
		err = stopped
	}
	if closed := s.Close(); err == nil {
		err = closed
	}
	return err
}

func slices(ctx context.Context, s *slicelet.Slicelet) error {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/4, maxReserve)))
	defer cancel()
	return s.Drain(ctx)
}
