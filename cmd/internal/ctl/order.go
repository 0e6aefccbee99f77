package ctl

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// signature is who gives an order and why.
type signature struct{ who, why string }

func (s *signature) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.who, "as", defaultWho(), "`name` under which the order is noted")
	cmd.Flags().StringVar(&s.why, "reason", "", "why, for readers of the history, in at most 512 bytes")
	// What is whose default is the machine's, not the documentation's.
	cmd.Flags().Lookup("as").DefValue = "you"
}

func defaultWho() string {
	if who := os.Getenv("USER"); who != "" {
		return who
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

func (s *signature) check() error {
	if s.who == "" {
		return run.Usagef("--as: %q is not allowed: want the name under which the order is noted", s.who)
	}
	return nil
}

// orderView is what became of an order.
type orderView struct {
	Job   string `json:"job"`
	Order int64  `json:"order"`
	// Generation is the one in which it is carried out, if Pending is empty.
	Generation int64  `json:"generation"`
	Pending    string `json:"pending,omitempty"`
	Note       string `json:"note,omitempty"`
	reached
}

// orderCommand makes a command that gives one order. want makes it of the
// arguments, and what says in a sentence what is in force then.
func (a *app) orderCommand(cmd *cobra.Command, want func(args []string) (*slicerv1.GiveOrderRequest, error), what func(args []string, v *orderView) string) *cobra.Command {
	var by signature
	cmd.RunE = a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
		if err := checkJob(args[0]); err != nil {
			return err
		}
		if err := by.check(); err != nil {
			return err
		}
		m, err := want(args)
		if err != nil {
			return err
		}
		m.Job, m.Who, m.Why = args[0], by.who, by.why
		tell(cmd.ErrOrStderr(), c.at.String())
		resp, err := call(ctx, c, c.admin.GiveOrder, m)
		if err != nil {
			return err
		}
		v := &orderView{Job: args[0], Order: resp.Order, Generation: resp.Generation, Pending: resp.Pending, Note: resp.Note, reached: c.at.reached()}
		if a.json {
			err = printJSON(cmd.OutOrStdout(), v)
		} else {
			v.print(cmd.OutOrStdout(), what(args, v))
		}
		if err == nil && v.Pending != "" {
			err = &codedError{fmt.Sprintf("order %d is in force but not carried out yet: %s", v.Order, v.Pending), exitPending}
		}
		return err
	})
	by.bind(cmd)
	return cmd
}

func (v *orderView) print(w io.Writer, what string) {
	fmt.Fprintf(w, "%s (order %d", what, v.Order)
	if v.Note != "" {
		fmt.Fprintf(w, "; %s", v.Note)
	}
	fmt.Fprintln(w, ")")
}

func (a *app) freezeCommand() *cobra.Command {
	var last time.Duration
	cmd := &cobra.Command{
		Use:   "freeze JOB [--reason TEXT] [--for DURATION]",
		Short: "Keep a job's assignment as it is, whatever happens",
		Long: `Freezes a job: from the moment that this returns no generation is written but by
order of an operator (drain, pin, exclude, rollback), whatever happens to its load
and its tasks. So a task that dies keeps its slices, one that restarts or is new
owns nothing, and one that drains by itself waits, until the job is unfrozen. The
freeze outlives the assigner. With --for the assigner that decides counts from when
it first saw the order, by no wall clock, and notes the end in the history.`,
		Example: `  slicerctl freeze my-job --reason 'incident 4711' --for 2h
  slicerctl unfreeze my-job`,
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
	}
	cmd.Flags().DurationVar(&last, "for", 0, "how long, such as 30m, at most 720h; until it is unfrozen if left out")
	return a.orderCommand(cmd, func([]string) (*slicerv1.GiveOrderRequest, error) {
		if cmd.Flags().Changed("for") && (last < time.Millisecond || last > maxFreeze) {
			return nil, run.Usagef("--for: %s is not allowed: want 1ms to %s", last, maxFreeze)
		}
		return &slicerv1.GiveOrderRequest{Order: &slicerv1.GiveOrderRequest_Freeze{Freeze: &slicerv1.FreezeOrder{ForMs: last.Milliseconds()}}}, nil
	}, func(args []string, _ *orderView) string {
		if last > 0 {
			return fmt.Sprintf("job %s is frozen for %s", args[0], last)
		}
		return fmt.Sprintf("job %s is frozen", args[0])
	})
}

// maxFreeze is the longest freeze that ends by itself.
const maxFreeze = 30 * 24 * time.Hour

func (a *app) unfreezeCommand() *cobra.Command {
	return a.orderCommand(&cobra.Command{
		Use:   "unfreeze JOB [--reason TEXT]",
		Short: "Let a frozen job be balanced again",
		Long: `Lifts a freeze, and with it the one that the assigner lays on a job by itself when
a large part of its tasks falls silent at once: a task that is still silent then counts
as dead, and what has happened meanwhile is answered at once.`,
		Example:           `  slicerctl unfreeze my-job --reason 'the switch is back'`,
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
	}, func([]string) (*slicerv1.GiveOrderRequest, error) {
		return &slicerv1.GiveOrderRequest{Order: &slicerv1.GiveOrderRequest_Unfreeze{Unfreeze: &slicerv1.UnfreezeOrder{}}}, nil
	}, func(args []string, _ *orderView) string { return fmt.Sprintf("job %s is not frozen any more", args[0]) })
}

func (a *app) excludeCommand() *cobra.Command {
	return a.orderCommand(&cobra.Command{
		Use:   "exclude JOB TASK [--reason TEXT]",
		Short: "Give a task no slices, until it is included again",
		Long: `Moves all slices of a task to others at once, and gives it none, not even when it
restarts, until slicerctl include. Some other task has to be running.`,
		Example: `  slicerctl exclude my-job web-3 --reason 'bad disk'
  slicerctl include my-job web-3`,
		Args:              run.Args("JOB", "TASK"),
		ValidArgsFunction: a.complete(jobs, tasks),
	}, func(args []string) (*slicerv1.GiveOrderRequest, error) {
		return &slicerv1.GiveOrderRequest{Order: &slicerv1.GiveOrderRequest_Exclude{Exclude: &slicerv1.ExcludeOrder{Task: args[1]}}}, nil
	}, func(args []string, v *orderView) string {
		if v.Pending != "" {
			return fmt.Sprintf("task %s of job %s is to own nothing", args[1], args[0])
		}
		return fmt.Sprintf("task %s of job %s owns nothing, as of generation %d", args[1], args[0], v.Generation)
	})
}

func (a *app) includeCommand() *cobra.Command {
	return a.orderCommand(&cobra.Command{
		Use:               "include JOB TASK [--reason TEXT]",
		Short:             "Let a task own slices again that was excluded",
		Example:           `  slicerctl include my-job web-3`,
		Args:              run.Args("JOB", "TASK"),
		ValidArgsFunction: a.complete(jobs, tasks),
	}, func(args []string) (*slicerv1.GiveOrderRequest, error) {
		return &slicerv1.GiveOrderRequest{Order: &slicerv1.GiveOrderRequest_Include{Include: &slicerv1.IncludeOrder{Task: args[1]}}}, nil
	}, func(args []string, _ *orderView) string {
		return fmt.Sprintf("task %s of job %s may own slices again", args[1], args[0])
	})
}
