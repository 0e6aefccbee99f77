package plane

import (
	"context"
	"errors"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// LeaseTime looks up the lease_duration of a job in consistent mode, as a served
// lease store asks for it: 0 for other jobs.
func LeaseTime(s store.Store) func(ctx context.Context, job string) (time.Duration, error) {
	return func(ctx context.Context, job string) (time.Duration, error) {
		j, err := s.GetJob(ctx, job)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return 0, nil
		case err != nil:
			return 0, err
		case j.Config.Mode != assignment.Consistent:
			return 0, nil
		}
		return j.Config.LeaseDuration, nil
	}
}
