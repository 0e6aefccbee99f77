// Package leasejobs looks up in the configs of jobs what served leases go by.
package leasejobs

import (
	"context"
	"errors"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// Time looks up the lease_duration of a job in consistent mode, as a served
// lease store asks for it: 0 for other jobs.
func Time(s store.Store) func(ctx context.Context, job string) (time.Duration, error) {
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

// Access looks up the access of a job, as a served lease store asks for it: the zero
// value for one that is unknown.
func Access(s store.Store) func(ctx context.Context, job string) (assignment.Access, error) {
	return func(ctx context.Context, job string) (assignment.Access, error) {
		j, err := s.GetJob(ctx, job)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return assignment.Access{}, nil
		case err != nil:
			return assignment.Access{}, err
		}
		return j.Config.Access, nil
	}
}
