package ctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
a moment later. The task stays draining until it restarts or the drain is undone.

A server that is linked with slicelet does the same by itself with Slicelet.Drain.`,
		Example: `  slicerctl drain my-job web-3 && systemctl stop web-3
  slicerctl drain my-job web-3 --undo`,
		Args:              run.Args("JOB", "TASK"),
		ValidArgsFunction: a.complete(jobs, tasks),
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			if limit <= 0 {
				return run.Usagef("--timeout: %s is not allowed: want more than 0", limit)
			}
			resp, err := call(ctx, c, c.admin.DrainTask, &slicerv1.DrainTaskRequest{Job: args[0], Task: args[1], Undo: undo, Who: by.who, Why: by.why})
			if err != nil {
				return err
			}
			v := drainView{Job: args[0], Task: args[1], Undone: undo, Generation: resp.Generation}
			if wait && !undo {
				err = c.waitConverged(ctx, &v, limit)
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
	cmd.Flags().DurationVar(&limit, "timeout", time.Minute, "how long to wait for that, such as 30s")
	by.bind(cmd)
	return cmd
}

func (v *drainView) print(cmd *cobra.Command) {
	w := cmd.OutOrStdout()
	switch {
	case v.Undone:
		fmt.Fprintf(w, "task %s of job %s may own slices again\n", v.Task, v.Job)
	case v.Converged:
		fmt.Fprintf(w, "task %s of job %s owns nothing since generation %d, and everyone connected knows\n", v.Task, v.Job, v.Generation)
	default:
		fmt.Fprintf(w, "task %s of job %s owns nothing since generation %d\n", v.Task, v.Job, v.Generation)
	}
}

// waitConverged waits until everybody holds the generation of the drain.
func (c *client) waitConverged(ctx context.Context, v *drainView, limit time.Duration) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		info, err := call(ctx, c, c.admin.InspectJob, &slicerv1.InspectJobRequest{Job: v.Job})
		if err != nil {
			return err
		}
		v.Converged, v.Stragglers = info.ConvergedGeneration >= v.Generation, info.Stragglers
		if v.Converged {
			v.Stragglers = nil
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			behind := "nobody names them"
			if len(v.Stragglers) > 0 {
				behind = strings.Join(v.Stragglers, " ")
			}
			return &codedError{fmt.Sprintf("task %s owns nothing since generation %d, but not everyone had acknowledged that within %s; behind: %s",
				v.Task, v.Generation, limit, behind), exitUnreachable}
		case <-tick.C:
		}
	}
}
