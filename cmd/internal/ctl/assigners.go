package ctl

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func (a *app) assignersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "assigners",
		Short: "Show the assigners, and which is preferred for each job",
		Long: `Shows each assigner that is registered, with its address and zone, for how many jobs
it is the one to choose, and for how many at least one Distributor takes it for
preferred; then, for each job, which one the assigner that answers would choose, and which
the Distributors that are attached to it take for preferred: how many of them, and
for how long all of these have. An alarm is what is wrong with an assigner's clock, as
inspect shows it of a job that it decides.

Where Distributors differ, or prefer another than the one to choose, a takeover
is under way, or one is cut off from the store. When no assigner can be reached
the Distributor answers, with its own view.`,
		Example: `  slicerctl assigners
  slicerctl assigners --json | jq '.jobs[] | select(.disputed) | .job'`,
		Args: run.Args(),
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
			resp, err := call(ctx, c, c.admin.ListAssigners, &slicerv1.ListAssignersRequest{})
			if err != nil {
				return err
			}
			v := newAssigners(resp)
			c.alarms(ctx, v)
			if a.json {
				return printJSON(cmd.OutOrStdout(), v)
			}
			v.print(cmd.OutOrStdout())
			return nil
		}),
	}
}

// assignersView is what assigners shows. Its JSON form is an interface: add, never rename.
type assignersView struct {
	// Assigner is the one that answers; empty when none could be reached: then a
	// Distributor answers.
	Assigner     string            `json:"assigner,omitempty"`
	Distributor  string            `json:"distributor,omitempty"`
	Assigners    []assignerView    `json:"assigners"`
	Jobs         []jobAssigners    `json:"jobs"`
	Distributors []distributorView `json:"distributors"`
	Alarms       []alarmView       `json:"alarms,omitempty"`
}

// alarmView is what is wrong with an assigner's clock, as it is seen at a job.
type alarmView struct {
	Assigner string `json:"assigner"`
	Job      string `json:"job"`
	Alarm    string `json:"alarm"`
}

type assignerView struct {
	ID      string   `json:"id"`
	Address string   `json:"address"`
	Zone    string   `json:"zone,omitempty"`
	Stores  []string `json:"stores,omitempty"`
	// Jobs is for how many jobs it is the one to choose, Preferred for how many some
	// Distributor takes it for preferred.
	Jobs      uint32 `json:"jobs"`
	Preferred uint32 `json:"preferred"`
}

type jobAssigners struct {
	Job    string `json:"job"`
	Store  string `json:"store,omitempty"`
	Zone   string `json:"zone,omitempty"`
	Chosen string `json:"chosen,omitempty"`
	// Disputed: not every Distributor prefers the one that is chosen.
	Disputed  bool            `json:"disputed"`
	Preferred []preferredView `json:"preferred"`
}

type preferredView struct {
	Assigner     string `json:"assigner"` // empty: none
	Distributors uint32 `json:"distributors"`
	// ForMS is for how long all of these have preferred it.
	ForMS int64 `json:"for_ms"`
}

type distributorView struct {
	ID   string `json:"id"`
	Zone string `json:"zone,omitempty"`
}

func newAssigners(m *slicerv1.ListAssignersResponse) *assignersView {
	v := &assignersView{Assigner: m.GetAssignerId(), Distributor: m.GetDistributorId(),
		Assigners: []assignerView{}, Jobs: []jobAssigners{}, Distributors: []distributorView{}}
	for _, x := range m.GetAssigners() {
		v.Assigners = append(v.Assigners, assignerView{x.GetId(), x.GetAddress(), x.GetZone(), x.GetStores(), x.GetJobs(), x.GetPreferred()})
	}
	for _, x := range m.GetJobs() {
		j := jobAssigners{Job: x.GetJob(), Store: x.GetStore(), Zone: x.GetZone(), Chosen: x.GetChosen(), Preferred: []preferredView{}}
		for _, b := range x.GetViews() {
			j.Preferred = append(j.Preferred, preferredView{b.GetAssignerId(), b.GetDistributors(), b.GetForMs()})
			j.Disputed = j.Disputed || v.Assigner != "" && b.GetAssignerId() != x.GetChosen()
		}
		j.Disputed = j.Disputed || len(j.Preferred) > 1
		v.Jobs = append(v.Jobs, j)
	}
	for _, x := range m.GetDistributors() {
		v.Distributors = append(v.Distributors, distributorView{x.GetId(), x.GetZone()})
	}
	return v
}

// How much is asked for alarms: so many jobs of each assigner, for so long altogether.
const (
	alarmJobs   = 4
	alarmWithin = 2 * time.Second
)

// alarms asks each assigner about some of the jobs that it decides. What is not
// answered is left out.
func (c *client) alarms(ctx context.Context, v *assignersView) {
	ctx, cancel := context.WithTimeout(ctx, alarmWithin)
	defer cancel()
	asked := make(map[string]int)
	for _, j := range v.Jobs {
		if asked[j.Chosen]++; j.Chosen == "" || asked[j.Chosen] > alarmJobs {
			continue
		}
		info, err := call(ctx, c, c.admin.InspectJob, &slicerv1.InspectJobRequest{Job: j.Job})
		if err == nil && info.Alarm != "" {
			v.Alarms = append(v.Alarms, alarmView{info.AssignerId, j.Job, info.Alarm})
			asked[j.Chosen] = alarmJobs
		}
	}
}

func (v *assignersView) print(w io.Writer) {
	if v.Assigner != "" {
		var names []string
		for _, d := range v.Distributors {
			names = append(names, d.ID)
		}
		fmt.Fprintf(w, "as assigner %s sees it, with %s: %s\n", v.Assigner, plural(len(names), "distributor"), or(strings.Join(names, " "), "-"))
	} else {
		fmt.Fprintf(w, "no assigner answers; the view of distributor %s\n", v.Distributor)
	}
	fmt.Fprintln(w)
	t := newTable("ASSIGNER", "ADDRESS", "ZONE", "STORES", ">JOBS", ">PREFERRED")
	for _, x := range v.Assigners {
		jobs := strconv.Itoa(int(x.Jobs))
		if v.Assigner == "" {
			jobs = "-"
		}
		t.row(x.ID, x.Address, or(x.Zone, "-"), or(strings.Join(x.Stores, " "), "-"), jobs, strconv.Itoa(int(x.Preferred)))
	}
	t.print(w)
	for _, x := range v.Alarms {
		fmt.Fprintf(w, "alarm: assigner %s, job %s: %s\n", x.Assigner, x.Job, x.Alarm)
	}
	if len(v.Jobs) == 0 {
		return
	}
	fmt.Fprintln(w)
	t = newTable("JOB", "ZONE", "STORE", "CHOSEN", "PREFERRED")
	for _, j := range v.Jobs {
		var who []string
		for _, b := range j.Preferred {
			who = append(who, fmt.Sprintf("%s by %s for %s", or(b.Assigner, "none"),
				plural(int(b.Distributors), "distributor"), age(time.Duration(b.ForMS)*time.Millisecond)))
		}
		t.row(j.Job, or(j.Zone, "-"), or(j.Store, "-"), or(j.Chosen, "-"), or(strings.Join(who, ", "), "-"))
	}
	t.print(w)
}
