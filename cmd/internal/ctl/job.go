package ctl

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/slicer-project/slicer/assignment/jobfile"
	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func (a *app) jobCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job",
		Short: "Create, show, change and delete jobs",
		Long: `A job is one sharded service: its config says how its keys are spread over its
tasks. Jobs are written as YAML; job get prints a file that job apply takes.`,
	}
	cmd.AddCommand(a.applyCommand(), a.getCommand(), a.listCommand(), a.deleteCommand())
	return cmd
}

func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "get JOB",
		Short:             "Print a job's config as a file that apply takes",
		Example:           "  slicerctl job get my-job > my-job.yaml",
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			resp, err := call(ctx, c, c.admin.GetJob, &slicerv1.GetJobRequest{Name: args[0]})
			if err != nil {
				return err
			}
			cfg, version, err := jobFromProto(resp.Job)
			if err != nil {
				return err
			}
			if a.json {
				v := newJobView(cfg, version)
				v.CreatedBy = resp.Job.GetCreatedBy()
				return printJSON(cmd.OutOrStdout(), v)
			}
			_, err = cmd.OutOrStdout().Write(jobfile.Format(cfg))
			return err
		}),
	}
}

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "list",
		Aliases:           []string{"ls"},
		Short:             "List all jobs",
		Args:              run.Args(),
		ValidArgsFunction: noFiles,
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
			resp, err := call(ctx, c, c.admin.ListJobs, &slicerv1.ListJobsRequest{})
			if err != nil {
				return err
			}
			for _, s := range resp.GetUnanswered() {
				fmt.Fprintf(cmd.ErrOrStderr(), "slicerctl: store %s does not answer: its jobs are missing\n", s)
			}
			views := make([]jobView, 0, len(resp.Jobs))
			for _, j := range resp.Jobs {
				cfg, version, err := jobFromProto(j)
				if err != nil {
					return err
				}
				v := newJobView(cfg, version)
				v.CreatedBy = j.GetCreatedBy()
				views = append(views, v)
			}
			if a.json {
				return printJSON(cmd.OutOrStdout(), views)
			}
			t := newTable("JOB", "MODE", "REPLICAS", "LOAD", "ZONE", "STORE", ">VERSION")
			for _, v := range views {
				t.row(v.Name, v.Mode, fmt.Sprintf("%d-%d", v.MinReplicas, v.MaxReplicas), v.LoadMetric,
					or(v.Zone, "-"), or(v.Store, "-"), fmt.Sprint(v.Version))
			}
			t.print(cmd.OutOrStdout())
			return nil
		}),
	}
}

func (a *app) deleteCommand() *cobra.Command {
	var yes bool
	var by signature
	cmd := &cobra.Command{
		Use:   "delete JOB [--yes] [--reason TEXT]",
		Short: "Delete a job and all its assignments",
		Long: `Deletes a job and all its assignments. Its clerks and slicelets go on with what
they hold. Asks first when standard input is a terminal; elsewhere --yes is needed.
slicerctl history JOB goes on to say who deleted it, why, and what came before.`,
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			if !yes {
				if err := confirm(cmd, args[0]); err != nil {
					return err
				}
			}
			if _, err := call(ctx, c, c.admin.DeleteJob, &slicerv1.DeleteJobRequest{Name: args[0], Who: by.who, Why: by.why}); err != nil {
				return err
			}
			if a.json {
				return printJSON(cmd.OutOrStdout(), applied{Job: args[0], Result: "deleted"})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "job %s deleted\n", args[0])
			return nil
		}),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	by.bind(cmd)
	return cmd
}

// confirm asks on a terminal. The answer is the job's name: deleting the wrong
// one would stop balancing a service.
func confirm(cmd *cobra.Command, job string) error {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return run.Usagef("job delete: --yes is needed where there is no terminal to ask at")
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Delete job %s and all its assignments? Type its name: ", job)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && err != io.EOF {
		return err
	}
	if strings.TrimSpace(answer) != job {
		return &codedError{"nothing was deleted", run.ExitFailed}
	}
	return nil
}
