package ctl

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// entryView is one order, or one generation. Its JSON form is an interface: add,
// never rename.
type entryView struct {
	At time.Time `json:"at"`
	// Order is the order's number; of a generation, the newest it was decided under.
	Order      int64  `json:"order"`
	Action     string `json:"action,omitempty"` // empty for a generation
	Generation int64  `json:"generation,omitempty"`
	Previous   int64  `json:"previous,omitempty"`
	// Identity is that of the caller's certificate; Who is a comment beside it.
	Identity string `json:"identity,omitempty"`
	Who      string `json:"who,omitempty"` // unknown if an order does not say; empty for what the assigner did by itself
	Peer     string `json:"peer,omitempty"`
	Assigner string `json:"assigner"`
	Why      string `json:"why,omitempty"`
	// Of generations.
	KeyChurn       float64        `json:"key_churn,omitempty"`
	LoadChurn      float64        `json:"load_churn,omitempty"`
	Imbalance      float64        `json:"imbalance,omitempty"`
	ImbalanceAfter float64        `json:"imbalance_after,omitempty"`
	Decisions      []decisionView `json:"decisions,omitempty"`
	LeftOut        uint32         `json:"decisions_left_out,omitempty"`
}

func newEntry(m *slicerv1.HistoryEntry) entryView {
	s := m.GetStamp()
	who := s.GetWho()
	if m.Action != "" {
		who = or(who, unknown)
	}
	return entryView{
		At: time.UnixMilli(s.GetUnixMs()).UTC(), Order: m.Order, Action: m.Action, Generation: m.Generation, Previous: m.Previous,
		Identity: s.GetIdentity(), Who: who, Peer: s.GetPeer(), Assigner: m.AssignerId, Why: s.GetWhy(),
		KeyChurn: m.KeyChurn, LoadChurn: m.LoadChurn, Imbalance: m.Imbalance, ImbalanceAfter: m.ImbalanceAfter,
		Decisions: newDecisions(m.Decisions), LeftOut: m.LeftOut,
	}
}

type historyView struct {
	Job     string      `json:"job"`
	Entries []entryView `json:"entries"` // oldest first
	LeftOut uint32      `json:"left_out,omitempty"`
}

func (a *app) historyCommand() *cobra.Command {
	var limit int
	var wide bool
	cmd := &cobra.Command{
		Use:   "history JOB [--limit N] [--wide]",
		Short: "Show what was done to a job, by whom and why",
		Long: `Shows the orders that operators have given, changes of the job's config among them,
and the generations that were written, oldest first: who, when, why, and what it
moved. As many of both are kept as the job's setting history says; of a job that was
deleted the last 16 orders, also when it has been made anew. --wide prints one line an
entry, however long, with the address that each order came from: for grep. --json has
the decisions of each generation, too.

BY is the identity of the certificate that an order came with and, where there was none,
what --as said. --wide and --json show both.`,
		Example: `  slicerctl history my-job --limit 20
  slicerctl history my-job --wide | grep web-3
  slicerctl history my-job --json | jq '.entries[] | select(.action)'`,
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			if limit < 1 || limit > 2*assignment.MaxHistory {
				return run.Usagef("--limit: %d is not allowed: want 1 to %d", limit, 2*assignment.MaxHistory)
			}
			resp, err := call(ctx, c, c.admin.GetHistory, &slicerv1.GetHistoryRequest{Job: args[0], Limit: uint32(limit)})
			if err != nil {
				return err
			}
			v := historyView{Job: args[0], Entries: []entryView{}, LeftOut: resp.LeftOut}
			for _, m := range resp.Entries {
				v.Entries = append(v.Entries, newEntry(m))
			}
			if a.json {
				return printJSON(cmd.OutOrStdout(), v)
			}
			v.print(cmd.OutOrStdout(), wide)
			return nil
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 30, "how many entries, the newest, 1 to 2000")
	cmd.Flags().BoolVar(&wide, "wide", false, "one line an entry, with the address that orders came from")
	return cmd
}

const (
	// historyWidth is what most screens have room for.
	historyWidth = 120
	// maxBy leaves a third of that for what was done, whatever people are called.
	maxBy = 36
)

func (v *historyView) print(w io.Writer, wide bool) {
	if len(v.Entries) == 0 {
		fmt.Fprintln(w, "nothing has been done yet")
		return
	}
	if v.LeftOut > 0 {
		fmt.Fprintf(w, "%d older entries are kept\n", v.LeftOut)
	}
	t := newTable("WHEN (UTC)", ">GENERATION", "BY", "WHAT")
	t.fit = historyWidth
	if wide {
		t = newTable("WHEN (UTC)", ">GENERATION", "BY", "WHAT", "WHY")
	}
	for i := range v.Entries {
		e := &v.Entries[i]
		generation := "-"
		if e.Action == "" {
			generation = fmt.Sprint(e.Generation)
		}
		if wide {
			t.row(e.At.Format(time.DateTime), generation, e.by(), e.what(), or(e.Why, "-"))
			continue
		}
		what := e.what()
		if e.Why != "" {
			what += "\nwhy: " + e.Why
		}
		t.row(e.At.Format(time.DateTime), generation, e.shortly(maxBy), what)
	}
	t.print(w)
}

// shortly is who did it, in at most width characters. The end of an identity says more than
// its beginning.
func (e *entryView) shortly(width int) string {
	id := named(e.Identity)
	if id == "" {
		return clip(e.whom(), width)
	}
	if len(id) > width {
		id = "..." + id[len(id)-width+3:]
	}
	return id
}

// whom is who did it: the identity and, as a comment, what --as said.
func (e *entryView) whom() string {
	if e.Who == "" && named(e.Identity) == "" {
		return "assigner " + e.Assigner
	}
	return whom(e.Identity, e.Who)
}

// whom names an identity, with the comment of --as, which alone is left where there is none.
func whom(identity, who string) string {
	switch id := named(identity); {
	case id == "":
		return who
	case who == "" || who == unknown:
		return id
	default:
		return id + " as " + who
	}
}

// named is an identity, "" for one that is none.
func named(identity string) string {
	if identity == string(access.Anonymous) {
		return ""
	}
	return identity
}

// unknown stands for callers that do not say who they are.
const unknown = "unknown"

// by also says from where.
func (e *entryView) by() string {
	if e.Peer == "" {
		return e.whom()
	}
	return fmt.Sprintf("%s (%s)", e.whom(), e.Peer)
}

func (e *entryView) what() string {
	if e.Action != "" {
		return e.Action
	}
	r := roundView{KeyChurn: e.KeyChurn, LoadChurn: e.LoadChurn}
	for _, d := range e.Decisions {
		if d.Kind != "skip" {
			r.Decisions = append(r.Decisions, d)
		}
	}
	if len(r.Decisions) == 0 && e.KeyChurn == 0 {
		return "the table of tasks"
	}
	s := r.describe()
	if e.LeftOut > 0 {
		s += fmt.Sprintf(" and %d more", e.LeftOut)
	}
	return s
}
