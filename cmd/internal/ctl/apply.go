package ctl

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/jobfile"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// applyTries is how often a write is tried that others get ahead of.
const applyTries = 5

// applied is what became of one job.
type applied struct {
	Job     string           `json:"job"`
	Result  string           `json:"result"` // created, updated, unchanged or deleted
	Version int64            `json:"version,omitempty"`
	Changes []jobfile.Change `json:"changes,omitempty"`
	DryRun  bool             `json:"dry_run,omitempty"` // it is only what would be done
	// Refused is why that would be refused, as far as it is known.
	Refused string `json:"refused,omitempty"`
	// Unchecked is what a dry run could not find out.
	Unchecked string `json:"unchecked,omitempty"`
	reached
}

func (a *app) applyCommand() *cobra.Command {
	var file string
	var by signature
	var dry bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE [--dry-run] [--reason TEXT]",
		Short: "Create jobs or change their configs",
		Long: `Creates the jobs of a YAML file, or changes their configs to what the file says:
a setting that the file leaves out takes its default. The file may hold several
documents, separated by ---. Says for each job whether it was created, updated or
unchanged, and which settings changed; --dry-run says it and writes nothing.
slicerctl history JOB says later who did it and why.

Several documents are applied all or none: all are checked before the first is written, each is
written over the version that it was compared with, and when one is refused those
before it are put back, which the histories show. For that moment others see the ones
that were written. If slicerctl is killed, or loses its server, between two jobs, the
first ones stay written: run it again.`,
		Example: `  slicerctl job apply -f my-job.yaml --reason 'more traffic is coming'
  slicerctl job apply -f - <<< 'name: my-job'`,
		Args:              run.Args(),
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return run.Usagef("job apply: -f is missing: name a file, or - for standard input")
			}
			configs, err := readJobs(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return a.with(func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
				tell(cmd.ErrOrStderr(), c.at.String())
				return a.apply(ctx, c, cmd.OutOrStdout(), configs, by, dry)
			})(cmd, args)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML `file` with one or more jobs; - is standard input")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be changed, and what would be refused as things stand")
	by.bind(cmd)
	return cmd
}

func readJobs(file string, in io.Reader) ([]assignment.JobConfig, error) {
	name := file
	if file == "-" {
		name = "standard input"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	// One byte more than is allowed, for Parse to complain of.
	data, err := io.ReadAll(io.LimitReader(in, jobfile.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return jobfile.Parse(name, data)
}

// planned is one job of a file and what is to become of it.
type planned struct {
	applied
	cfg assignment.JobConfig
	// before is what the job is now, nil if it is not there, and expect its version, -1
	// then.
	before *assignment.JobConfig
	expect int64
}

func (a *app) apply(ctx context.Context, c *client, w io.Writer, configs []assignment.JobConfig, by signature, dry bool) error {
	var all []planned
	var err error
	for range applyTries {
		if all, err = c.plan(ctx, configs); err != nil {
			return c.explain(err)
		}
		if dry {
			if err = c.foresee(ctx, all); err != nil {
				return c.explain(err)
			}
			break
		}
		if err = c.carryOut(ctx, all, by); status.Code(err) != codes.Aborted {
			break // else another has written meanwhile: compare anew
		}
	}
	if err != nil {
		return c.explain(err)
	}
	results := make([]applied, 0, len(all))
	for _, p := range all {
		p.DryRun, p.reached = dry, c.at.reached()
		if results = append(results, p.applied); !a.json {
			p.print(w)
		}
	}
	if a.json {
		if err := printJSON(w, results); err != nil {
			return err
		}
	}
	for _, r := range results {
		if r.Refused != "" {
			return &codedError{fmt.Sprintf("job %s would be refused: %s", r.Job, r.Refused), run.ExitFailed}
		}
	}
	return nil
}

// unchecked is what an assigner before CheckJob does not tell.
const unchecked = "whether its store is there, and whether the config may replace the one that is stored: the assigner is older than this slicerctl"

// foresee asks which of the jobs would be refused: for want of rights, to configure them as
// they are, and then with what their configs say of it; and for whatever else PutJob refuses. It
// takes an assigner that knows the calls, and notes what it was not told.
func (c *client) foresee(ctx context.Context, all []planned) error {
	for i := range all {
		p := &all[i]
		if p.Result == "unchanged" {
			continue
		}
		m := &slicerv1.CheckAccessRequest{Job: p.Job, Verb: assignment.Configure.String()}
		resp, err := call(ctx, c, c.admin.CheckAccess, m)
		if err == nil && !resp.GetAllowed() {
			p.Refused = fmt.Sprintf("identity %s may not configure it", resp.GetIdentity())
			continue
		}
		if err == nil && (p.before == nil || p.before.Access != p.cfg.Access) {
			if m.Access = wire.AccessToProto(p.cfg.Access); m.Access == nil {
				m.Access = &slicerv1.Access{} // what the policy says
			}
			if resp, err = call(ctx, c, c.admin.CheckAccess, m); err == nil && !resp.GetAllowed() {
				p.Refused = fmt.Sprintf("with this access identity %s could not configure it any more: name it in access.configure, or let an administrator apply this", resp.GetIdentity())
			}
		}
		if code := status.Code(err); err != nil && code != codes.Unimplemented && code != codes.NotFound {
			return err
		}
		if p.Refused != "" {
			continue
		}
		_, err = call(ctx, c, c.admin.CheckJob, &slicerv1.CheckJobRequest{Config: wire.JobToProto(p.cfg), ExpectedVersion: p.expect})
		switch status.Code(err) {
		case codes.OK:
		case codes.Unimplemented:
			p.Unchecked = unchecked
		case codes.InvalidArgument, codes.FailedPrecondition, codes.PermissionDenied, codes.ResourceExhausted, codes.Aborted:
			p.Refused = c.explain(err).Error()
		default:
			return err
		}
	}
	return nil
}

// plan compares each config with what is stored. It writes nothing.
func (c *client) plan(ctx context.Context, configs []assignment.JobConfig) (all []planned, err error) {
	for _, cfg := range configs {
		p := planned{applied: applied{Job: cfg.Name, Result: "created"}, cfg: cfg, expect: -1}
		got, err := call(ctx, c, c.admin.GetJob, &slicerv1.GetJobRequest{Name: cfg.Name, ToConfigure: true})
		switch {
		case err == nil:
			stored, version, err := jobFromProto(got.Job)
			if err != nil {
				return nil, err
			}
			p.before, p.expect, p.Version = &stored, version, version
			p.Result, p.Changes = "updated", jobfile.Changes(stored, cfg)
			if len(p.Changes) == 0 {
				p.Result = "unchanged"
			}
		case status.Code(err) != codes.NotFound:
			return nil, err
		default:
			p.Changes = jobfile.Changes(assignment.JobConfig{Name: cfg.Name}.WithDefaults(), cfg)
		}
		all = append(all, p)
	}
	return all, nil
}

// carryOut writes the configs, each over the version that it was compared with. When
// one is refused, or it is not known whether it was written, those before it are put
// back.
func (c *client) carryOut(ctx context.Context, all []planned, by signature) error {
	for i := range all {
		p := &all[i]
		if p.Result == "unchanged" {
			continue
		}
		put, err := call(ctx, c, c.admin.PutJob, &slicerv1.PutJobRequest{Config: wire.JobToProto(p.cfg), ExpectedVersion: p.expect, Who: by.who, Why: by.why})
		if err == nil {
			p.Version = put.GetJob().GetVersion()
			if p.before == nil {
				p.Changes = nil // a job that is new has no settings to differ from
			}
			continue
		}
		return c.rollBack(ctx, all[:i], p, err, by)
	}
	return nil
}

// rollBack undoes what was written before why kept failed from being written. The error
// is why, if nothing is left of it.
func (c *client) rollBack(ctx context.Context, written []planned, failed *planned, why error, by signature) error {
	ctx = context.WithoutCancel(ctx) // an interrupt must not leave half of it; call bounds each step
	by.why = strings.TrimSpace("rolled back, job " + failed.Job + " could not be applied. " + by.why)
	by.why = assignment.Clip(by.why, store.MaxWhy)
	var left []string
	undo := func(p *planned) {
		if err := c.undo(ctx, p, by); err != nil {
			left = append(left, fmt.Sprintf("job %s: %s", p.Job, c.explain(err)))
		}
	}
	switch status.Code(why) {
	case codes.Aborted, codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.ResourceExhausted, codes.Unimplemented:
	default: // it may have been written all the same
		failed.Version = 0
		undo(failed)
	}
	undone := 0
	for i := len(written) - 1; i >= 0; i-- {
		if written[i].Result != "unchanged" {
			undo(&written[i])
			undone++
		}
	}
	told := c.explain(why)
	switch {
	case len(left) > 0:
		return &codedError{fmt.Sprintf("job %s: %s; what was written before could not all be put back: %s", failed.Job, told, strings.Join(left, "; ")), exitCode(told)}
	case status.Code(why) == codes.Aborted:
		return why // to be tried again
	case undone > 0:
		return &codedError{fmt.Sprintf("job %s: %s (nothing is changed: %s put back)", failed.Job, told, plural(undone, "job")), exitCode(told)}
	}
	return told
}

// undo puts back what a job was before it was written here. What another has written
// since is left alone. Version 0 stands for one that may have been written.
func (c *client) undo(ctx context.Context, p *planned, by signature) error {
	got, err := call(ctx, c, c.admin.GetJob, &slicerv1.GetJobRequest{Name: p.Job})
	if status.Code(err) == codes.NotFound && p.before == nil {
		return nil
	}
	if err != nil {
		return err
	}
	now, version, err := jobFromProto(got.Job)
	switch {
	case err != nil:
		return err
	case p.Version == 0 && version == p.expect:
		return nil // it was not written
	case len(jobfile.Changes(now, p.cfg)) > 0 || p.Version != 0 && version != p.Version:
		return fmt.Errorf("another has written version %d since, which stays", version)
	case p.before == nil:
		_, err = call(ctx, c, c.admin.DeleteJob, &slicerv1.DeleteJobRequest{Name: p.Job, Who: by.who, Why: by.why})
	default:
		_, err = call(ctx, c, c.admin.PutJob, &slicerv1.PutJobRequest{Config: wire.JobToProto(*p.before), ExpectedVersion: version, Who: by.who, Why: by.why})
	}
	return err
}

func (r *applied) print(w io.Writer) {
	would, version := "", fmt.Sprintf(" (version %d)", r.Version)
	if r.DryRun && r.Result != "unchanged" {
		would, version = "would be ", ""
	}
	fmt.Fprintf(w, "job %s %s%s%s\n", r.Job, would, r.Result, version)
	for _, ch := range r.Changes {
		fmt.Fprintf(w, "  %s\n", ch)
	}
	if r.Unchecked != "" {
		fmt.Fprintf(w, "  not checked: %s\n", r.Unchecked)
	}
}
