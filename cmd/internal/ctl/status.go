package ctl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// statusAtOnce is how many jobs are asked about at a time.
const statusAtOnce = 16

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status [JOB...]",
		Short: "Show how the control plane and all jobs are, and exit by that",
		Long: `Shows the assigners, Distributors and stores, and of each job that the caller may
read: its health; how many tasks serve, and how many of those that live do not; how many tasks it
wants; load, imbalance and the floor that no assignment could go below; the replicas that
a slice may have; the generation, its age, and whether every connected subscriber holds it; and the
overrides in force. With JOBs it shows these alone.

HEALTH is the first of these that holds: store down; unknown (its assigner does not
answer); undecided (no assigner decides); empty (no task has reported yet, which is no
fault); down (no task serves); frozen; undecided (decisions are on hold for another reason);
refusing (tasks have no room for all that is asked); hot (the imbalance is above 1.5 floors, as
in the alert SlicerUneven, and there is load enough to tell); slow (subscribers do not
acknowledge what they were sent); ok. The status page has the same words. What is wrong is told
below the table.

WANTED is the number of tasks with which, at the present load, the CPU would be used to the job's
target_utilization, in tasks of the mean capacity; - if the tasks do not tell their CPU.

Exits with 0 when all is well, and with 7 when something is wrong with the control
plane or with one of the jobs shown, which --json tells as "well"; a JOB that is not found while
a store does not answer is one of these.`,
		Example: `  slicerctl status
  slicerctl status my-job || page-me
  slicerctl status --json | jq -r '.jobs[] | select(.health != "ok") | .job'`,
		ValidArgsFunction: a.complete(jobs),
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			for _, job := range args {
				if err := checkJob(job); err != nil {
					return err
				}
			}
			v, err := c.status(ctx, args)
			if err != nil {
				return err
			}
			if a.json {
				err = printJSON(cmd.OutOrStdout(), v)
			} else {
				v.print(cmd.OutOrStdout(), time.Now())
			}
			if err == nil && !v.Well {
				err = &codedError{v.summary(), exitUnwell}
			}
			return err
		}),
	}
}

// status asks about all jobs, or those named.
func (c *client) status(ctx context.Context, only []string) (*statusView, error) {
	var plane *assignersView
	resp, err := call(ctx, c, c.admin.ListAssigners, &slicerv1.ListAssignersRequest{})
	switch status.Code(err) {
	case codes.OK:
		plane = newAssigners(resp)
	case codes.PermissionDenied, codes.Unimplemented:
	default:
		return nil, err
	}
	list, err := call(ctx, c, c.admin.ListJobs, &slicerv1.ListJobsRequest{})
	if status.Code(err) == codes.Unavailable && plane != nil && plane.Assigner == "" {
		return newStatus(plane, []jobStatus{}, nil), nil // the Distributor is all that answers
	}
	unlisted := ""
	if err != nil {
		if status.Code(err) != codes.Unavailable || plane == nil {
			return nil, err
		}
		unlisted = "the jobs cannot be listed: " + c.explain(err).Error()
	}
	jobs := slices.Clone(list.GetJobs())
	if unlisted != "" || len(list.GetUnanswered()) > 0 {
		jobs = withNames(jobs, resp.GetJobs(), only)
	}
	if len(only) > 0 {
		jobs = slices.DeleteFunc(jobs, func(j *slicerv1.Job) bool { return !slices.Contains(only, j.GetConfig().GetName()) })
		for _, name := range only {
			if !slices.ContainsFunc(jobs, func(j *slicerv1.Job) bool { return j.GetConfig().GetName() == name }) {
				return nil, notFoundf("job %q: not found", name)
			}
		}
	}
	slices.SortFunc(jobs, func(x, y *slicerv1.Job) int {
		return strings.Compare(x.GetConfig().GetName(), y.GetConfig().GetName())
	})
	out, errs := make([]jobStatus, len(jobs)), make([]error, len(jobs))
	var asked sync.WaitGroup
	places := make(chan struct{}, statusAtOnce)
	for i, j := range jobs {
		places <- struct{}{}
		asked.Go(func() {
			defer func() { <-places }()
			info, err := call(ctx, c, c.admin.InspectJob, &slicerv1.InspectJobRequest{Job: j.GetConfig().GetName()})
			failed := ""
			if err != nil {
				info, failed = nil, c.explain(err).Error()
			}
			if j.Version == 0 && status.Code(err) == codes.NotFound {
				errs[i] = err
				return
			}
			if j.Version == 0 && info != nil { // of which the list told nothing
				j = info.GetJob()
			}
			out[i], errs[i] = newJobStatus(j, info, failed, slices.Contains(list.GetUnanswered(), j.GetConfig().GetStore()), time.Now())
		})
	}
	asked.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	v := newStatus(plane, out, list.GetUnanswered())
	if unlisted != "" {
		v.Well, v.Problems = false, append(v.Problems, unlisted)
	}
	return v, nil
}

// withNames adds the jobs that a list lacks as a store does not answer, and that Distributors
// ask about or that are asked for: they have a name alone, and the version 0.
func withNames(jobs []*slicerv1.Job, known []*slicerv1.JobAssigners, only []string) []*slicerv1.Job {
	names := slices.Clone(only)
	for _, j := range known {
		if j.GetStore() != "" { // else it is a name that was asked for, and no job
			names = append(names, j.GetJob())
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !slices.ContainsFunc(jobs, func(j *slicerv1.Job) bool { return j.GetConfig().GetName() == name }) {
			jobs = append(jobs, &slicerv1.Job{Config: &slicerv1.JobConfig{Name: name}})
		}
	}
	return jobs
}

// summary says on one line how much is wrong.
func (v *statusView) summary() string {
	var unwell []string
	for _, j := range v.Jobs {
		if !j.well() {
			unwell = append(unwell, j.Job)
		}
	}
	var parts []string
	if len(unwell) > 0 {
		more := ""
		if n := len(unwell) - 8; n > 0 {
			unwell, more = unwell[:8], fmt.Sprintf(" and %d more", n)
		}
		parts = append(parts, fmt.Sprintf("not well: %s%s", strings.Join(unwell, " "), more))
	}
	return strings.Join(append(parts, v.Problems...), "; ")
}

func (v *statusView) print(w io.Writer, now time.Time) {
	if v.Assigners != nil {
		var as, ds []string
		for _, a := range v.Assigners {
			as = append(as, a.ID)
		}
		for _, d := range v.Distributors {
			ds = append(ds, d.ID)
		}
		fmt.Fprintf(w, "%s: %s; %s: %s", plural(len(as), "assigner"), or(strings.Join(as, " "), "-"), plural(len(ds), "distributor"), or(strings.Join(ds, " "), "-"))
	} else {
		fmt.Fprint(w, "assigners and distributors are not shown here")
	}
	for _, s := range v.Stores {
		state := "up"
		if !s.Up {
			state = "down"
		}
		fmt.Fprintf(w, "; store %s %s", or(s.Name, "default"), state)
	}
	fmt.Fprintln(w)
	for _, p := range v.Problems {
		fmt.Fprintln(w, p)
	}
	fmt.Fprintln(w)
	if len(v.Jobs) == 0 {
		fmt.Fprintln(w, "no jobs")
		return
	}
	t := newTable("JOB", "HEALTH", ">TASKS", ">WANTED", ">CORES", ">LOAD", ">IMBALANCE", ">FLOOR", ">REPLICAS", ">GENERATION", ">AGE", "CONVERGED", "OVERRIDES")
	for _, j := range v.Jobs {
		t.row(j.cells(now)...)
	}
	t.print(w)
	var lines []string
	for _, j := range v.Jobs {
		for _, p := range j.Problems {
			lines = append(lines, j.Job+": "+p)
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(lines, "\n"))
	}
}

func (j *jobStatus) cells(now time.Time) []string {
	tasks := strconv.Itoa(j.Tasks.Serving)
	if n := j.Tasks.Living(); n > j.Tasks.Serving {
		tasks += "/" + strconv.Itoa(n)
	}
	wanted, cores, imbalance, floor := "-", "-", "-", "-"
	if j.Wanted > 0 {
		wanted = strconv.Itoa(int(j.Wanted))
	}
	if j.Cores > 0 {
		cores = fmt.Sprintf("%.2f", j.Cores)
	}
	if j.Imbalance > 0 {
		imbalance, floor = fmt.Sprintf("%.2f", j.Imbalance), fmt.Sprintf("%.2f", j.Floor)
	}
	generation, made, converged := "-", "-", "-"
	if j.Generation != 0 {
		generation, made, converged = strconv.FormatInt(j.Generation, 10), age(now.Sub(*j.Made)), "no"
		if j.Converged {
			converged = "yes"
		}
	}
	return []string{j.Job, string(j.Health), tasks, wanted, cores, rate(j.Load), imbalance, floor, fmt.Sprintf("%d-%d", j.MinReplicas, j.MaxReplicas), generation, made, converged, j.overrides()}
}
