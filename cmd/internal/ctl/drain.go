package ctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// drainPoll is how often a drain is asked after.
const drainPoll = 200 * time.Millisecond

type drainView struct {
	Job        string   `json:"job"`
	Task       string   `json:"task"`
	Undone     bool     `json:"undone"`
	Generation int64    `json:"generation"`
	Converged  bool     `json:"converged"`
	Stragglers []string `json:"stragglers,omitempty"`
	reached
}

func (a *app) drainCommand() *cobra.Command {
	var undo, wait bool
	var limit time.Duration
	var by signature
	cmd := &cobra.Command{
		Use:   "drain JOB TASK [--undo] [--wait=false]",
		Short: "Move all slices away from a task before it is stopped",
		Long: `Moves all slices of a task to others, then waits until every connected clerk and
slicelet has acknowledged that, so that no request is lost when the task is stopped
a moment later. The task stays draining until it restarts or the drain is undone. A
drain that cannot be stored in time is revoked; one that not all of them have
acknowledged in time is not, and ends with exit code 5.

A server that is linked with slicelet does the same by itself with Slicelet.Drain.`,
		Example: `  slicerctl drain my-job web-3 && systemctl stop web-3
  slicerctl drain my-job web-3 --undo`,
		Args:              run.Args("JOB", "TASK"),
		ValidArgsFunction: a.complete(jobs, tasks),
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			if err := by.check(); err != nil {
				return err
			}
			if limit <= 0 {
				return run.Usagef("--timeout: %s is not allowed: want more than 0", limit)
			}
			tell(cmd.ErrOrStderr(), c.at.String())
			begun := time.Now()
			c.timeout = limit
			resp, err := call(ctx, c, c.admin.DrainTask, &slicerv1.DrainTaskRequest{Job: args[0], Task: args[1], Undo: undo, Who: by.who, Why: by.why})
			if err != nil {
				return err
			}
			v := drainView{Job: args[0], Task: args[1], Undone: undo, Generation: resp.Generation, reached: c.at.reached()}
			if wait && !undo {
				err = c.waitConverged(ctx, &v, begun.Add(limit), limit)
			}
			if a.json {
				if perr := printJSON(cmd.OutOrStdout(), v); err == nil {
					err = perr
				}
				return err
			}
			if err == nil {
				v.print(cmd)
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "let the task own slices again")
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until every connected clerk and slicelet has acknowledged")
	cmd.Flags().DurationVar(&limit, "timeout", time.Minute, "how long all of that may take, such as 30s")
	by.bind(cmd)
	return cmd
}

func (v *drainView) print(cmd *cobra.Command) {
	w := cmd.OutOrStdout()
	switch {
	case v.Undone:
		fmt.Fprintf(w, "task %s of job %s may own slices again\n", v.Task, v.Job)
	case v.Converged:
		fmt.Fprintf(w, "task %s of job %s owns nothing since generation %d, and every connected subscriber knows\n", v.Task, v.Job, v.Generation)
	default:
		fmt.Fprintf(w, "task %s of job %s owns nothing since generation %d\n", v.Task, v.Job, v.Generation)
	}
}

// waitConverged waits until every subscriber holds the generation of the drain, at most
// until the limit of the whole drain. It goes on when an assigner dies meanwhile.
func (c *client) waitConverged(ctx context.Context, v *drainView, end time.Time, limit time.Duration) error {
	within, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	behind := "not known"
	for {
		info, err := call(within, c, c.admin.InspectJob, &slicerv1.InspectJobRequest{Job: v.Job})
		switch status.Code(err) {
		case codes.OK:
			if info.ConvergedGeneration >= v.Generation {
				v.Converged, v.Stragglers = true, nil
				return nil
			}
			if v.Stragglers = info.Stragglers; len(v.Stragglers) > 0 {
				behind = strings.Join(v.Stragglers, " ")
			}
		case codes.Unavailable, codes.DeadlineExceeded:
		default:
			return err
		}
		select {
		case <-within.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &codedError{fmt.Sprintf("task %s owns nothing since generation %d, but not every subscriber had acknowledged that within %s; behind: %s",
				v.Task, v.Generation, limit, behind), exitPending}
		case <-tick.C:
		}
	}
}
