package ctl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// explainView is why a key is where it is.
type explainView struct {
	Job        string         `json:"job"`
	Key        string         `json:"key"`
	SliceKey   string         `json:"slice_key"`
	Generation int64          `json:"generation"`
	Start      string         `json:"start"`
	End        string         `json:"end"`
	Pin        *pinView       `json:"pin,omitempty"`
	Owners     []keyOwnerView `json:"owners"`
	// Changes are what has happened to the key, oldest first: the newest for which the
	// answer has room.
	Changes []entryView `json:"changes"`
	LeftOut uint32      `json:"left_out,omitempty"`
	// Oldest is the generation that the history goes back to, 0 if there is none.
	Oldest     int64      `json:"oldest,omitempty"`
	OldestMade *time.Time `json:"oldest_made,omitempty"`
}

type keyOwnerView struct {
	Task string `json:"task"`
	// Since is the generation since which it owns the slice, or a later one.
	Since int64 `json:"since"`
	// Given is the generation of changes that gave it the key, 0 if that is not kept.
	Given   int64  `json:"given,omitempty"`
	Unknown string `json:"unknown,omitempty"`
	// Gone: the assigner knows that it is dead, or has another process in its place.
	Gone bool `json:"gone,omitempty"`
}

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain JOB KEY",
		Short: "Show which decision put a key where it is",
		Long: `Shows the owners of a key, since when, and the decision that put it there: why it was
taken, what it was to gain (its benefit: off the hottest task, the fall of squared
overload; to a new task the share of load that it takes on; otherwise the share of keys
that get an owner) and what it cost (the share of the keyspace and of the load that it
moved); then what else was done to the key's slice, as far back as the job's history goes.`,
		Example:           `  slicerctl explain my-job user/4711`,
		Args:              run.Args("JOB", "KEY"),
		ValidArgsFunction: a.complete(jobs),
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			if err := checkKey(1, args[1]); err != nil {
				return err
			}
			k := assignment.KeyOf(args[1])
			resp, err := call(ctx, c, c.admin.ExplainKey, &slicerv1.ExplainKeyRequest{Job: args[0], Key: uint64(k)})
			if err != nil {
				return err
			}
			v := newExplain(args[0], args[1], k, resp)
			c.markGone(ctx, v, k)
			if a.json {
				return printJSON(cmd.OutOrStdout(), v)
			}
			v.print(cmd.OutOrStdout(), time.Now())
			return nil
		}),
	}
}

func newExplain(job, key string, k assignment.SliceKey, m *slicerv1.ExplainKeyResponse) *explainView {
	v := &explainView{
		Job: job, Key: key, SliceKey: k.String(), Generation: m.Generation, Oldest: m.Oldest, Pin: newPin(m.Pin), LeftOut: m.LeftOut,
		Start: assignment.SliceKey(m.Start).String(), End: assignment.SliceKey(m.End).String(),
		Owners: []keyOwnerView{}, Changes: []entryView{},
	}
	for _, o := range m.Owners {
		v.Owners = append(v.Owners, keyOwnerView{Task: o.Task, Since: o.Since, Given: o.Given, Unknown: o.Unknown})
	}
	for _, e := range m.Changes {
		v.Changes = append(v.Changes, newEntry(e))
	}
	if m.Oldest != 0 {
		made := time.UnixMilli(m.OldestUnixMs).UTC()
		v.OldestMade = &made
	}
	return v
}

func (v *explainView) print(w io.Writer, now time.Time) {
	fmt.Fprintf(w, "key %s, slice key %s, in slice [%s,%s) of generation %d\n", printable(v.Key), v.SliceKey, v.Start, v.End, v.Generation)
	if v.Pin != nil {
		fmt.Fprintln(w, v.Pin.describe(now))
	}
	for _, o := range v.Owners {
		name := o.Task
		if o.Gone {
			name += ", which is gone,"
		}
		fmt.Fprintf(w, "%s owns it since generation %d: ", name, o.Since)
		i := slices.IndexFunc(v.Changes, func(e entryView) bool { return e.Generation == o.Given })
		if o.Given == 0 || i < 0 {
			fmt.Fprintf(w, "what put it there is not known: %s\n", o.Unknown)
			continue
		}
		e := &v.Changes[i]
		fmt.Fprintf(w, "put there by generation %d, %s ago (%s)\n", e.Generation, age(now.Sub(e.At)), or(e.Why, "no reason given"))
		for _, d := range e.Decisions {
			if d.To == o.Task {
				fmt.Fprintf(w, "  %s\n", d.describe())
			}
		}
	}
	if len(v.Owners) > 0 && !slices.ContainsFunc(v.Owners, func(o keyOwnerView) bool { return !o.Gone }) {
		fmt.Fprintf(w, "no task serves it: slicerctl status %s and inspect %s tell why\n", v.Job, v.Job)
	}
	if len(v.Changes) == 0 {
		return
	}
	fmt.Fprintln(w, "\nwhat was done to it, newest first:")
	for _, e := range slices.Backward(v.Changes) {
		fmt.Fprintf(w, "generation %d, %s ago, by %s (%s)\n", e.Generation, age(now.Sub(e.At)), e.by(), or(e.Why, "no reason given"))
		printDecisions(w, e.Decisions)
	}
	if v.LeftOut > 0 {
		fmt.Fprintf(w, "%d older changes are kept\n", v.LeftOut)
	}
}

// maxStill is how many of a generation's decisions are named that move no key: where many slices
// are merged there is one for each neighbour, and the move that is looked for among them.
const maxStill = 2

func printDecisions(w io.Writer, all []decisionView) {
	still := 0
	for _, d := range all {
		if d.From == "" && d.To == "" {
			if still++; still > maxStill {
				continue
			}
		}
		fmt.Fprintf(w, "  %s\n", d.describe())
	}
	if still > maxStill {
		fmt.Fprintf(w, "  %d more splits and merges, which move no key\n", still-maxStill)
	}
}

// describe says a decision with what it gains and costs.
func (d *decisionView) describe() string {
	s := fmt.Sprintf("%s (%s)", d.Kind, d.Reason)
	if d.From != "" {
		s += " from " + d.From
	}
	if d.To != "" {
		s += " to " + d.To
	}
	return s + fmt.Sprintf(" of [%s,%s): benefit %.3g, cost %s of keys and %s of load", d.Start, d.End, d.Benefit, percent(d.KeyChurn), percent(d.LoadChurn))
}
