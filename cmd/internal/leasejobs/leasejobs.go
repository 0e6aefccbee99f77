// Package leasejobs looks up in the configs of jobs what served leases go by.
package leasejobs

import (
	"context"
	"errors"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/lease/serve"
)

// Terms looks up what a job's config says of its leases, in one read, as a served lease
// store asks for it: the zero value for a job that is unknown.
func Terms(s store.Store) func(ctx context.Context, job string) (serve.Terms, error) {
	return func(ctx context.Context, job string) (t serve.Terms, err error) {
		j, err := s.GetJob(ctx, job)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return t, nil
		case err != nil:
			return t, err
		}
		if t.Access = j.Config.Access; j.Config.Mode == assignment.Consistent {
			t.LeaseTime = j.Config.LeaseDuration
		}
		return t, nil
	}
}

// Time looks up the LeaseTime of Terms alone, as a front asks for it.
func Time(s store.Store) func(ctx context.Context, job string) (time.Duration, error) {
	terms := Terms(s)
	return func(ctx context.Context, job string) (time.Duration, error) {
		t, err := terms(ctx, job)
		return t.LeaseTime, err
	}
}

// Access looks up the Access of Terms alone.
func Access(s store.Store) func(ctx context.Context, job string) (assignment.Access, error) {
	terms := Terms(s)
	return func(ctx context.Context, job string) (assignment.Access, error) {
		t, err := terms(ctx, job)
		return t.Access, err
	}
}
