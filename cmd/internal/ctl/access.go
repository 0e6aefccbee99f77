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
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxPolicy is the most of a policy that is read, bytes.
const maxPolicy = 1 << 20

// accessOut is whether an identity may do something.
type accessOut struct {
	Job      string `json:"job"`
	Identity string `json:"identity"`
	Verb     string `json:"verb"`
	Task     string `json:"task,omitempty"`
	Allowed  bool   `json:"allowed"`
	// Rule is which one says so, where that is known: to administrators, with --policy, and to
	// those that may read the job if it is one of the job's own access.
	Rule string `json:"rule,omitempty"`
	// NoJob says that there is no such job, so that the policy alone decides.
	NoJob bool `json:"no_job,omitempty"`
	// Policy is the file that was asked in place of the assigner's own.
	Policy string `json:"policy,omitempty"`
}

func (a *app) accessCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "See who may do what",
		Long: `The policy of the assigners and Distributors, and the access of each job's config, say
which identities may do what with a job. An identity is that of a certificate: its first
SPIFFE URI SAN, else its first DNS SAN.`,
	}
	cmd.AddCommand(a.accessCheckCommand())
	return cmd
}

func (a *app) accessCheckCommand() *cobra.Command {
	var as, verb, task, file string
	cmd := &cobra.Command{
		Use:   "check JOB --verb VERB [--as ID] [--task TASK] [--policy FILE]",
		Short: "Say whether an identity may do something with a job",
		Long: `Says yes or no, and exits with 0 or 1. The assigner decides by the policy that it has in
force and the job's stored config; if there is no such job, by the policy alone, and says so:
--verb configure then means to create it. Without --as the question is about the certificate
that slicerctl itself shows, for which no right is needed: run it with that of a program that
is refused to see what identity it has. To ask about another identity takes the right to read
the job. The rule by which it is decided is shown to administrators. Others that may read the
job are shown it if it stands in the job's own access.

With --policy the file decides in place of the assigner's policy, here, with the config that
the server has of the job: to try a policy before it is put in force.`,
		Example: `  slicerctl access check my-job --verb own --as spiffe://corp/ns/web/task/web-3 --task web-3
  slicerctl access check my-job --verb configure --as spiffe://corp/ns/web/deployer --policy new.yaml
  slicerctl --tls-cert server.pem --tls-key server.key --tls-ca ca.pem access check my-job --verb own --task web-3`,
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m := &slicerv1.CheckAccessRequest{Job: args[0], Identity: as, Verb: verb, Task: task}
		q, err := questionOf(m, file != "")
		if err != nil {
			return err
		}
		var policy *access.Policy
		if file != "" {
			if policy, err = readPolicy(file); err != nil {
				return err
			}
		}
		return a.with(func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
			v := &accessOut{Job: m.Job, Verb: verb, Task: task, Policy: file}
			if policy != nil {
				err = c.mayByFile(ctx, v, policy, q)
			} else {
				err = c.may(ctx, v, m)
			}
			if err != nil {
				return err
			}
			return v.tell(cmd.OutOrStdout(), a.json)
		})(cmd, args)
	}
	cmd.Flags().StringVar(&as, "as", "", "`identity` that is asked about, such as spiffe://corp/ns/web/deployer; without it that of the certificate that slicerctl shows")
	cmd.Flags().StringVar(&verb, "verb", "", "own, watch, read, order or configure")
	cmd.Flags().StringVar(&task, "task", "", "with --verb own: the `name` of the task that it wants to be; without it no pattern with {task} fits")
	cmd.Flags().StringVar(&file, "policy", "", "`file` with a policy to decide by")
	return cmd
}

// questionOf refuses what no server needs to be asked.
func questionOf(m *slicerv1.CheckAccessRequest, local bool) (q access.Question, err error) {
	q = access.Question{Job: m.Job, Identity: access.Identity(m.Identity), Task: m.Task}
	if err := checkJob(m.Job); err != nil {
		return q, err
	}
	if q.Verb, err = assignment.ParseVerb(m.Verb); err != nil {
		return q, run.Usagef("--verb: %q is not allowed: want own, watch, read, order or configure", m.Verb)
	}
	switch {
	case m.Identity == "" && local:
		return q, run.Usagef("--as is missing: with --policy no server says whose certificate this is")
	case m.Identity != "" && !q.Identity.Valid():
		return q, run.Usagef("--as: %q is not allowed: want a SPIFFE id, a DNS name in lower case, or %s", assignment.Clip(m.Identity, 80), access.Anonymous)
	case m.Task != "" && q.Verb != assignment.Own:
		return q, run.Usagef("--task: %q is not allowed: want it with --verb own alone", m.Task)
	case m.Task != "" && store.ValidateTaskName(m.Task) != nil:
		return q, run.Usagef("--task: %w", store.ValidateTaskName(m.Task))
	}
	return q, nil
}

func readPolicy(file string) (*access.Policy, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPolicy+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(data) > maxPolicy {
		return nil, fmt.Errorf("%s: a policy of more than %d bytes is not allowed", file, maxPolicy)
	}
	return access.Parse(file, data)
}

// may asks the assigner.
func (c *client) may(ctx context.Context, v *accessOut, m *slicerv1.CheckAccessRequest) error {
	resp, err := call(ctx, c, c.admin.CheckAccess, m)
	v.Identity, v.Allowed, v.Rule, v.NoJob = resp.GetIdentity(), resp.GetAllowed(), resp.GetRule(), resp.GetNoJob()
	return err
}

// mayByFile asks a policy. A job that is not there yet has no access of its own.
func (c *client) mayByFile(ctx context.Context, v *accessOut, p *access.Policy, q access.Question) error {
	resp, err := call(ctx, c, c.admin.GetJob, &slicerv1.GetJobRequest{Name: q.Job})
	if err != nil && status.Code(err) != codes.NotFound {
		return err
	}
	v.NoJob = err != nil
	if err == nil {
		cfg, _, err := jobFromProto(resp.GetJob())
		if err != nil {
			return err
		}
		q.Access = cfg.Access
	}
	v.Identity = string(q.Identity)
	v.Rule, v.Allowed = p.May(q)
	return nil
}

// tell prints the answer. No is an error without words, for the exit code.
func (v *accessOut) tell(w io.Writer, asJSON bool) error {
	answer, may := "yes", "may"
	if !v.Allowed {
		answer, may = "no", "may not"
	}
	if asJSON {
		if err := printJSON(w, v); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(w, "%s: %s %s %s job %s", answer, v.Identity, may, v.Verb, v.Job)
		if v.Task != "" {
			fmt.Fprintf(w, " as task %s", v.Task)
		}
		if v.Rule != "" {
			fmt.Fprintf(w, " (%s)", v.Rule)
		}
		if !v.Allowed && v.Verb == assignment.Own.String() && v.Task == "" {
			fmt.Fprint(w, "; no pattern with {task} fits without --task")
		}
		if v.NoJob {
			fmt.Fprint(w, "; there is no such job, so the policy alone decides")
		}
		fmt.Fprintln(w)
	}
	if !v.Allowed {
		return &codedError{"", run.ExitFailed}
	}
	return nil
}
