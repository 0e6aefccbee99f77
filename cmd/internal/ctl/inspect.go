package ctl

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// inspectTries is how often inspect looks for one generation in both of its
// sources, with a growing multiple of inspectPause in between.
const (
	inspectTries = 4
	inspectPause = 50 * time.Millisecond
)

func (a *app) inspectCommand() *cobra.Command {
	var listed bool
	var task string
	cmd := &cobra.Command{
		Use:   "inspect JOB [--task T] [--slices]",
		Short: "Show a job's tasks, their slices and load, and how even it is",
		Long: `Shows each task with its state, slices, share of the keyspace and load; how uneven
the load is; the generation and its age; which assigner decides; and how many of
the clerks and slicelets that are connected hold which generation, how long the
newest took from its write to half of them, to 99 % and to the last, and which are
slow (has not acknowledged for 5 s what it was sent). Where there are two tiers of
Distributors it says of which one the server is.

SHARE is the share of the keyspace that the task owns, alone or with other
replicas. LOAD is in the job's load units a second, smoothed; OF MEAN is that load
over the mean of the tasks that run and are not excluded, by capacity. imbalance is
the largest load over that mean; floor is the least that any assignment of whole keys
could reach. MISROUTED is requests a second for keys that are not the task's, CPU a
share of what its process may use. A Backup Distributor knows config and assignment
alone: load and all that concerns it are left out.

SLICES are those of the process that runs. Below the table stand the slices that the
newest assignment still has with a task that is dead, or with the process before the
one that runs, as those of a job that is frozen; and for some minutes the tasks that
are gone.`,
		Example: `  slicerctl inspect my-job
  slicerctl inspect my-job --task web-3 --slices
  slicerctl inspect my-job --json | jq '.tasks[] | {name, load}'`,
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			v, err := c.inspect(ctx, args[0])
			if err != nil {
				return err
			}
			if err := v.only(task, listed); err != nil {
				return err
			}
			if a.json {
				return printJSON(cmd.OutOrStdout(), v)
			}
			v.print(cmd.OutOrStdout(), time.Now())
			return nil
		}),
	}
	cmd.Flags().BoolVar(&listed, "slices", false, "list the slices with their tasks")
	cmd.Flags().StringVar(&task, "task", "", "show one `task` alone")
	must(cmd.RegisterFlagCompletionFunc("task", a.complete(jobs, tasks)))
	return cmd
}

// inspect asks for the assignment and for what the assigner knows, of one
// generation where that can be had: the Distributor may be about to hear of it.
func (c *client) inspect(ctx context.Context, job string) (*inspectView, error) {
	var a *assignment.Assignment
	var info *slicerv1.InspectJobResponse
	for try := range inspectTries {
		var err error
		info, err = call(ctx, c, c.admin.InspectJob, &slicerv1.InspectJobRequest{Job: job})
		missing := status.Code(err) == codes.Unimplemented || status.Code(err) == codes.Unavailable
		if err != nil && !missing {
			return nil, err
		}
		if err == nil && info.Generation == 0 {
			break // no task to assign anything to yet
		}
		// From a Backup Distributor, or while no assigner lives, the assignment alone.
		var ferr error
		if a, ferr = c.fetch(ctx, job); ferr != nil {
			if status.Code(err) == codes.Unavailable {
				ferr = err
			}
			return nil, ferr
		}
		if info == nil || info.Generation == int64(a.Generation()) {
			break
		}
		if !backoff.Sleep(ctx, time.Duration(try+1)*inspectPause) {
			return nil, ctx.Err()
		}
	}
	config := info.GetJob()
	if info == nil {
		// A Backup Distributor knows the config too; without it there is less to show.
		if got, err := call(ctx, c, c.admin.GetJob, &slicerv1.GetJobRequest{Name: job}); err == nil {
			config = got.Job
		}
	}
	v, err := newInspectView(job, config, a, info)
	if err == nil {
		v.Through = c.through(ctx)
	}
	return v, err
}
