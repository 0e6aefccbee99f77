package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber"
	"github.com/slicer-project/slicer/cmd/internal/change"
	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

type changeView struct {
	Job        string      `json:"job"`
	Generation int64       `json:"generation"`
	Previous   int64       `json:"previous"`
	At         time.Time   `json:"at"`
	Tasks      int         `json:"tasks"`
	Slices     int         `json:"slices"`
	KeyChurn   float64     `json:"key_churn"`
	Moves      []moveView  `json:"moves,omitempty"`
	Splits     int         `json:"splits"`
	Merges     int         `json:"merges"`
	Arrived    []string    `json:"arrived,omitempty"`
	Left       []string    `json:"left,omitempty"`
	States     []stateView `json:"states,omitempty"`
	// Why is the round that made it, where that is known.
	Why *roundView `json:"why,omitempty"`
}

type moveView struct {
	From   string  `json:"from,omitempty"`
	To     string  `json:"to,omitempty"`
	Share  float64 `json:"share"`
	Slices int     `json:"slices"`
}

type stateView struct {
	Task string `json:"task"`
	From string `json:"from"`
	To   string `json:"to"`
}

func (a *app) watchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch JOB",
		Short: "Print a line for each new assignment of a job",
		Long: `Prints the assignment in force and then a line for each newer one: the local time
at which it came, the share of the keyspace that came to other tasks, from which to which, the slices that were
cut or joined, the tasks that came or went, and the reasons where an assigner says
them. A reader that is slow gets the newest and misses some between. Ends with
SIGINT or SIGTERM.`,
		Example: `  slicerctl watch my-job
  slicerctl watch my-job --json | jq -c '{generation, key_churn}'`,
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			return a.watch(ctx, c, cmd, args[0])
		}),
	}
}

func (a *app) watch(ctx context.Context, c *client, cmd *cobra.Command, job string) error {
	opts, err := a.dialOptions()
	if err != nil {
		return err
	}
	states := make(chan subscriber.State, 64)
	sub, err := subscriber.New(subscriber.Config{
		Job: job, Role: subscriber.Observer, ClientID: subscriber.NewClientID("slicerctl"),
		Distributors: []string{a.server}, DialOptions: opts,
		Observe: func(s subscriber.State) { offer(states, s) },
	})
	if err != nil {
		return err
	}
	defer sub.Close()
	patience := time.NewTimer(a.timeout)
	defer patience.Stop()
	var held *assignment.Assignment
	var trouble error
	for {
		var s subscriber.State
		select {
		case <-ctx.Done():
			return nil // that is how a watch ends
		case <-patience.C:
			// A job without tasks has no assignment: that is worth waiting for.
			if err := sub.State().Err; held == nil && err != nil {
				return &codedError{fmt.Sprintf("no assignment of job %q from %s within %s: %s", job, a.server, a.timeout, reason(err)), exitUnreachable}
			}
			continue
		case s = <-states:
		}
		switch {
		case held == nil && errors.Is(s.Err, subscriber.ErrUnknownJob):
			return notFoundf("job %q: not found", job)
		case held == nil && errors.Is(s.Err, subscriber.ErrNotAllowed):
			return errors.New(reason(s.Err))
		case held != nil && (s.Err == nil) != (trouble == nil):
			if trouble = s.Err; trouble != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "slicerctl: %s; trying again\n", reason(trouble))
			}
		}
		if s.Assignment == nil || !s.Assignment.Newer(held) {
			continue
		}
		v := newChange(held, s.Assignment)
		v.Why = c.why(ctx, job, v.Generation)
		held = s.Assignment
		if a.json {
			err = printLine(cmd.OutOrStdout(), v)
		} else {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), v.line(time.Now()))
		}
		if err != nil {
			return err
		}
	}
}

// reason is what a subscriber says of a server, without gRPC's own words.
func reason(err error) string {
	s := err.Error()
	if _, why, ok := strings.Cut(s, "connection error: desc = "); ok {
		return transport(why)
	}
	return s
}

// offer puts a state into a queue that forgets the oldest when it is full.
func offer(states chan subscriber.State, s subscriber.State) {
	for {
		select {
		case states <- s:
			return
		default:
		}
		select {
		case <-states:
		default:
		}
	}
}

// why asks for the round that made a generation; nil when there is no answer.
func (c *client) why(ctx context.Context, job string, generation int64) *roundView {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	info, err := c.admin.InspectJob(ctx, &slicerv1.InspectJobRequest{Job: job})
	if err != nil || info.GetLastRound().GetGeneration() != generation {
		return nil
	}
	return newRound(info.LastRound)
}

func newChange(old, next *assignment.Assignment) changeView {
	ch := change.Between(old, next)
	v := changeView{
		Job: next.Job(), Generation: int64(next.Generation()), Previous: int64(next.Previous()), At: next.Generation().Time().UTC(),
		Tasks: next.NumTasks(), Slices: next.NumSlices(), KeyChurn: ch.Churn, Splits: ch.Splits, Merges: ch.Merges,
		Arrived: ch.Arrived, Left: ch.Left,
	}
	for _, m := range ch.Moves {
		v.Moves = append(v.Moves, moveView(m))
	}
	for _, s := range ch.States {
		v.States = append(v.States, stateView{s.Task, s.From.String(), s.To.String()})
	}
	return v
}

// maxMovesShown keeps a line readable.
const maxMovesShown = 4

// line is the change for people.
func (v *changeView) line(now time.Time) string {
	parts := []string{fmt.Sprintf("%s generation %d: %s on %s", now.Format("15:04:05.000"), v.Generation, plural(v.Slices, "slice"), plural(v.Tasks, "task"))}
	if len(v.Moves) > 0 {
		var moves []string
		for i, m := range v.Moves {
			if i == maxMovesShown {
				moves = append(moves, fmt.Sprintf("%d more", len(v.Moves)-i))
				break
			}
			moves = append(moves, m.String())
		}
		parts = append(parts, percent(v.KeyChurn)+" of keys moved: "+strings.Join(moves, ", "))
	}
	if v.Splits > 0 {
		parts = append(parts, plural(v.Splits, "split"))
	}
	if v.Merges > 0 {
		parts = append(parts, plural(v.Merges, "merge"))
	}
	var ts []string
	for _, n := range v.Arrived {
		ts = append(ts, "+"+n)
	}
	for _, n := range v.Left {
		ts = append(ts, "-"+n)
	}
	for _, s := range v.States {
		if s.From == s.To {
			ts = append(ts, s.Task+" restarted")
		} else {
			ts = append(ts, s.Task+" "+s.From+" -> "+s.To)
		}
	}
	if len(ts) > 0 {
		parts = append(parts, "tasks: "+strings.Join(ts, ", "))
	}
	if why := v.Why.summary(); why != "" {
		parts = append(parts, "why: "+why)
	}
	return strings.Join(parts, "; ")
}

func (m moveView) String() string {
	switch {
	case m.From == "":
		return fmt.Sprintf("+%s %s", m.To, percent(m.Share))
	case m.To == "":
		return fmt.Sprintf("-%s %s", m.From, percent(m.Share))
	}
	return fmt.Sprintf("%s -> %s %s", m.From, m.To, percent(m.Share))
}
