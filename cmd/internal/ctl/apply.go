package ctl

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/jobfile"
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
}

func (a *app) applyCommand() *cobra.Command {
	var file string
	var by signature
	cmd := &cobra.Command{
		Use:   "apply -f FILE [--reason TEXT]",
		Short: "Create jobs or change their configs",
		Long: `Creates the jobs of a YAML file, or changes their configs to what the file says:
a setting that the file leaves out takes its default. The file may hold several
documents, separated by ---. All are checked before the first is written. Says for
each job whether it was created, updated or unchanged, and which settings changed.
slicerctl history JOB says later who did it and why.`,
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
				return a.apply(ctx, c, cmd.OutOrStdout(), configs, by)
			})(cmd, args)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML `file` with one or more jobs; - is standard input")
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

func (a *app) apply(ctx context.Context, c *client, w io.Writer, configs []assignment.JobConfig, by signature) error {
	all := make([]applied, 0, len(configs))
	var failed error
	for _, cfg := range configs {
		r, err := c.applyOne(ctx, cfg, by)
		if err != nil {
			failed = c.explain(err)
			break
		}
		all = append(all, r)
		if !a.json {
			r.print(w)
		}
	}
	if a.json {
		if err := printJSON(w, all); err != nil && failed == nil {
			failed = err
		}
	}
	if failed != nil && len(configs) > 1 {
		failed = &codedError{fmt.Sprintf("%s (%d of %d jobs were applied before)", failed, len(all), len(configs)), exitCode(failed)}
	}
	return failed
}

func (r *applied) print(w io.Writer) {
	fmt.Fprintf(w, "job %s %s (version %d)\n", r.Job, r.Result, r.Version)
	for _, ch := range r.Changes {
		fmt.Fprintf(w, "  %s\n", ch)
	}
}

// applyOne writes one config over the version that it was compared with, again
// when somebody else wrote in between.
func (c *client) applyOne(ctx context.Context, cfg assignment.JobConfig, by signature) (applied, error) {
	var last error
	for range applyTries {
		r := applied{Job: cfg.Name, Result: "created"}
		expect := int64(-1)
		got, err := call(ctx, c, c.admin.GetJob, &slicerv1.GetJobRequest{Name: cfg.Name})
		switch {
		case err == nil:
			stored, version, err := jobFromProto(got.Job)
			if err != nil {
				return r, err
			}
			r.Changes = jobfile.Changes(stored, cfg)
			if len(r.Changes) == 0 {
				r.Result, r.Version = "unchanged", version
				return r, nil
			}
			r.Result, expect = "updated", version
		case status.Code(err) != codes.NotFound:
			return r, err
		}
		put, err := call(ctx, c, c.admin.PutJob, &slicerv1.PutJobRequest{Config: wire.JobToProto(cfg), ExpectedVersion: expect, Who: by.who, Why: by.why})
		if err == nil {
			r.Version = put.GetJob().GetVersion()
			return r, nil
		}
		if last = err; status.Code(err) != codes.Aborted {
			break
		}
	}
	return applied{}, last
}
