package ctl

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/health"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/screen"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func (a *app) topCommand() *cobra.Command {
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "top JOB",
		Short: "Follow a job's load and decisions live",
		Long: `Shows, again and again, a job's tasks, the most loaded first: LOAD in the job's load
units a second, OF MEAN by capacity, CPU as a share of what the task may use, the requests a
second that it refuses, LEVEL the least criticality that it has no room for, and the requests for
keys that are not its own; the slices that the balancer has
found to be hot, as they have more replicas than others or are one key alone; and the
decisions of the last rounds with their reasons.

On a terminal it draws one screen over the other. Otherwise it prints a line each time,
and one for each decision of a new round; with --json an object a line. Ends with SIGINT or
SIGTERM. While the server cannot be reached it says so, and tries again.`,
		Example: `  slicerctl top my-job
  slicerctl top my-job --interval 10s | tee my-job.log
  slicerctl top my-job --json | jq -c '{at, imbalance: .status.imbalance, hottest: .status.hottest}'`,
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			if interval < minInterval {
				return run.Usagef("--interval: %s is not allowed: want at least %s", interval, minInterval)
			}
			return (&follower{c: c, job: args[0]}).follow(ctx, interval, a.topOutput(cmd.OutOrStdout()))
		}),
	}
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "`time` between two looks, at least 100ms")
	return cmd
}

// topOutput shows one view after another.
func (a *app) topOutput(w io.Writer) func(*topView) error {
	if a.json {
		return func(v *topView) error { return printLine(w, v) }
	}
	if size := screen.Size(w); size != nil {
		return (&topScreen{on: screen.Screen{W: w, Size: size}}).draw
	}
	return func(v *topView) error {
		_, err := fmt.Fprintln(w, strings.Join(v.lines(), "\n"))
		return err
	}
}

// follower asks about a job again and again.
type follower struct {
	c    *client
	job  string
	held *assignment.Assignment
	// denied says that the assignment may not be watched: it is asked for no more, as each
	// refusal is a line in the server's audit log.
	denied bool
	seen   int64 // when the last round that was shown was held, Unix milliseconds
}

func (f *follower) follow(ctx context.Context, interval time.Duration, show func(*topView) error) error {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for first := true; ; first = false {
		v, err := f.look(ctx)
		switch code := status.Code(err); {
		case ctx.Err() != nil:
			return nil // that is how it ends
		case err != nil && !first && (code == codes.Unavailable || code == codes.DeadlineExceeded):
			v = &topView{At: time.Now(), Job: jobStatus{Job: f.job, Health: health.Unknown}, Tasks: []topTask{}, Hot: []hotView{}, Error: f.c.explain(err).Error()}
		case err != nil:
			return err
		}
		if err := show(v); err != nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// look asks once. The assignment is asked for where it is not the one that is held.
func (f *follower) look(ctx context.Context) (*topView, error) {
	info, err := call(ctx, f.c, f.c.admin.InspectJob, &slicerv1.InspectJobRequest{Job: f.job})
	if err != nil {
		return nil, err
	}
	if info.Generation != 0 && !f.denied && (f.held == nil || int64(f.held.Generation()) != info.Generation) {
		held, err := f.c.fetch(ctx, f.job)
		switch code := status.Code(err); code {
		case codes.OK:
			f.held = held
		case codes.PermissionDenied: // what may be read need not be what may be watched
			f.denied = true
		default:
			return nil, err
		}
	}
	v, err := newTop(time.Now(), info, f.held)
	if err != nil {
		return nil, err
	}
	if at := info.GetLastRound().GetUnixMs(); at == f.seen {
		v.Round = nil
	} else {
		f.seen = at
	}
	return v, nil
}

// topScreen draws views over each other on a terminal.
type topScreen struct {
	on        screen.Screen
	decisions []string // the newest last
}

func (s *topScreen) draw(v *topView) error {
	if r := v.Round; r != nil {
		for _, d := range r.Decisions[:min(len(r.Decisions), maxDecisionsShown)] {
			s.decisions = append(s.decisions, r.At.Local().Format("15:04:05 ")+d.line())
		}
		s.decisions = s.decisions[max(0, len(s.decisions)-maxDecisionsShown):]
	}
	_, height := s.on.Size()
	return s.on.Draw(s.lines(v, height))
}

// lines are those of a view on so many lines of screen: what follows the tasks stays in view.
func (s *topScreen) lines(v *topView, height int) []string {
	head := []string{fmt.Sprintf("job %s at %s: %s", v.Job.Job, v.At.Local().Format("15:04:05"), or(v.Error, v.headline()))}
	head = append(head, v.Job.Problems...)
	head = append(head, "")
	var tail []string
	if len(v.Hot) > 0 {
		t := newTable("HOT SLICE", "END", ">REPLICAS", "TASKS")
		for _, h := range v.Hot {
			end := h.End
			if h.Key {
				end = "one key"
			}
			t.row(h.Start, end, fmt.Sprint(len(h.Tasks)), strings.Join(h.Tasks, " "))
		}
		tail = append(append(tail, ""), t.lines()...)
	}
	if len(s.decisions) > 0 {
		tail = append(append(tail, "", "LAST DECISIONS"), s.decisions...)
	}
	if v.Error != "" {
		return append(head, tail...)
	}
	rows := max(height-2-len(head)-len(tail), 3)
	return append(append(head, v.table(rows)...), tail...)
}
