package ctl

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// limitsOut is how customers of a job stand to their limits. Rates are units of the load
// metric a second.
type limitsOut struct {
	Job        string         `json:"job"`
	LoadMetric string         `json:"load_metric"`
	Customers  []customerView `json:"customers"`
}

type customerView struct {
	// Customer is empty if no task has told its name yet.
	Customer string `json:"customer"`
	// Limit is 0 if only the criticality is limited.
	Limit          float64 `json:"limit"`
	MaxCriticality string  `json:"max_criticality,omitempty"`
	Asked          float64 `json:"asked"`
	Used           float64 `json:"used"`
	// Distributors are what it asks for, and may use, of the tasks that are connected to each.
	Distributors []customerPartView `json:"distributors"`
}

type customerPartView struct {
	Distributor string  `json:"distributor"`
	Asked       float64 `json:"asked"`
	Used        float64 `json:"used"`
	Share       float64 `json:"share"`
}

func newLimits(job string, c assignment.JobConfig, all []*slicerv1.CustomerStatus) *limitsOut {
	v := &limitsOut{Job: job, LoadMetric: c.LoadMetric, Customers: []customerView{}}
	for _, x := range all {
		y := customerView{
			Customer: x.GetLimit().GetCustomer(), Limit: x.GetLimit().GetRate(), Asked: x.GetAsked(), Used: x.GetUsed(),
			MaxCriticality: assignment.Criticality(x.GetLimit().GetMaxCriticality()).String(), Distributors: []customerPartView{},
		}
		for _, p := range x.GetParts() {
			y.Distributors = append(y.Distributors, customerPartView{p.GetDistributor(), p.GetAsked(), p.GetUsed(), p.GetShare()})
		}
		v.Customers = append(v.Customers, y)
	}
	return v
}

func (a *app) limitsCommand() *cobra.Command {
	var customer string
	top := uint32(20)
	cmd := &cobra.Command{
		Use:   "limits JOB [--customer NAME]",
		Short: "Show what customers ask for, and what their limits let them have",
		Long: `Shows the limits of a job's customers, over all its tasks, what each asks for and what
it gets, in units of the job's load metric a second: those that have a limit of their own,
and of the others those that ask for most. With --customer only that one, and how its limit
is divided among the Distributors, by the tasks that are connected to each.

Limits are set in the job's config ("limits"), which slicerctl job apply changes.`,
		Example:           "  slicerctl limits my-job\n  slicerctl limits my-job --customer batch",
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			if customer != "" && !assignment.ValidCustomer(customer) {
				return &assignment.FieldError{Field: "--customer", Value: customer, Allowed: fmt.Sprintf("1 to %d printable ASCII characters without space", assignment.MaxCustomerLen)}
			}
			info, err := call(ctx, c, c.admin.InspectJob, &slicerv1.InspectJobRequest{Job: args[0], Customers: max(top, 1), Customer: customer})
			if err != nil {
				return err
			}
			cfg, _, err := jobFromProto(info.GetJob())
			if err != nil {
				return err
			}
			if !info.GetPreferred() {
				return fmt.Errorf("assigner %q is not preferred for job %q, and only the one that is knows what customers ask for: try again in a moment", info.GetAssignerId(), args[0])
			}
			v := newLimits(args[0], cfg, info.GetCustomers())
			if a.json {
				return printJSON(cmd.OutOrStdout(), v)
			}
			v.print(cmd.OutOrStdout(), customer)
			return nil
		}),
	}
	cmd.Flags().StringVar(&customer, "customer", "", "only this customer, by Distributor")
	cmd.Flags().Uint32Var(&top, "top", top, "how many customers, those that ask for most")
	return cmd
}

func (v *limitsOut) print(w io.Writer, only string) {
	unit := map[string]string{assignment.LoadRequests: "requests", assignment.LoadCPU: "CPU seconds", assignment.LoadCustom: "custom units"}[v.LoadMetric]
	if len(v.Customers) == 0 {
		if only != "" {
			fmt.Fprintf(w, "Customer %q of job %s has no limit, or has asked for nothing.\n", only, v.Job)
		} else {
			fmt.Fprintf(w, "No customer of job %s that has a limit has asked for anything.\n", v.Job)
		}
		return
	}
	amount := func(x float64) string { return fmt.Sprintf("%.4g", x) }
	fmt.Fprintf(w, "Job %s, %s a second:\n\n", v.Job, unit)
	t := newTable("CUSTOMER", ">LIMIT", ">ASKED FOR", ">USED", ">REFUSED", "HIGHEST CRITICALITY")
	for _, c := range v.Customers {
		limit := "none"
		if c.Limit > 0 {
			limit = amount(c.Limit)
		}
		t.row(cmp.Or(c.Customer, "(not known yet)"), limit, amount(c.Asked), amount(c.Used), amount(max(c.Asked-c.Used, 0)), c.MaxCriticality)
	}
	t.print(w)
	if only == "" {
		return
	}
	fmt.Fprintln(w)
	t = newTable("DISTRIBUTOR", ">ITS SHARE", ">ASKED FOR", ">USED")
	for _, c := range v.Customers {
		for _, p := range c.Distributors {
			t.row(p.Distributor, amount(p.Share), amount(p.Asked), amount(p.Used))
		}
	}
	t.print(w)
}
