package ctl

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/jobfile"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/maintenance"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/lease"
)

func (o *storeOp) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check --store URL",
		Short: "Read everything in a store and say what is wrong",
		Long: `Reads every record at one moment: job configs, heads, assignments with all their
parts, orders, histories, registrations, and leases. Says of each fault which key it is at, what
is wrong, and what store repair would do. Changes nothing. Exit code 6 means that there are faults.`,
		Example: `  slicerctl store check --store etcd://etcd-1:2379,etcd-2:2379/slicer
  slicerctl store check --store pebble:///var/lib/slicer --json`,
		Args: run.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.on(cmd, pebblestore.ReadOnly, func(m maintenance.Medium, s *maintenance.Snapshot) error {
				r, err := maintenance.Check(cmd.Context(), m.Where(), s, maintenance.Options{Lease: checkLease(m), Config: fromHistory})
				if err != nil {
					return err
				}
				if err := o.report(cmd.OutOrStdout(), r); err != nil {
					return err
				}
				if n := len(r.Faults); n > 0 {
					return &codedError{fmt.Sprintf("%s: %s", m.Where(), plural(n, "fault")), exitFaults}
				}
				return nil
			})
		},
	}
}

func (o *storeOp) report(w io.Writer, r *maintenance.Report) error {
	if o.app.json {
		return printJSON(w, r)
	}
	fmt.Fprintf(w, "store %s: id %s, revision %d, %s, %s, %d deleted, %s, %s\n", r.Store, or(r.StoreID, "none"), r.Revision,
		plural(r.Records, "record"), plural(r.Jobs, "job"), r.Deleted, plural(len(r.Registered), "assigner"), plural(r.Sessions, "lease session"))
	for _, f := range r.Faults {
		fmt.Fprintf(w, "%s\n  fault:  %s\n  repair: %s\n", f.Key, f.Problem, or(f.Mend, "not possible"))
	}
	for _, key := range r.Foreign {
		fmt.Fprintf(w, "%s\n  none of Slicer's: left alone\n", key)
	}
	return nil
}

// checkLease reads the records of leases in the form that the medium has them in. In
// Pebble they are sealed, and what they say is checked when they are served.
func checkLease(m maintenance.Medium) func(key string, value []byte) error {
	if _, ok := m.(*pebblestore.Medium); ok {
		return maintenance.Sealed
	}
	return func(key string, value []byte) error {
		parts := strings.SplitN(key, "/", 4)
		if len(parts) < 3 {
			return nil // none of a job's
		}
		what := strings.Join(parts[2:], "/")
		var g lease.Guard
		var b lease.Bridge
		var c lease.Claim
		switch {
		case what == "r/guard":
			return g.UnmarshalText(value)
		case what == "r/bridge":
			return b.UnmarshalText(value)
		case what == "head", strings.HasPrefix(what, "h/"):
			return c.UnmarshalText(value)
		}
		return nil
	}
}

// fromHistory puts a job's config together from what its history says was set, as long
// as that goes back to when the job was made and leaves nothing out.
func fromHistory(job string, orders []store.Entry) (assignment.JobConfig, string, error) {
	const create, change = "create job", "change job"
	values := map[string]string{"name": job}
	begun, last := false, int64(0)
	for _, e := range orders {
		what, settings, _ := strings.Cut(e.Action, ": ")
		switch {
		case what != create && what != change && !strings.HasPrefix(what, create+", and ") && !strings.HasPrefix(what, change+", and "):
			if begun && e.Order != last+1 {
				return assignment.JobConfig{}, "", fmt.Errorf("an order before number %d is missing from the history", e.Order)
			}
			last = e.Order
			continue
		case what == create:
			begun, values = true, map[string]string{"name": job}
		case !begun:
			continue
		case e.Order != last+1:
			return assignment.JobConfig{}, "", fmt.Errorf("an order before number %d is missing from the history", e.Order)
		}
		last = e.Order
		if strings.Contains(e.Action, ", and ") {
			return assignment.JobConfig{}, "", fmt.Errorf("order %d in the history leaves settings out", e.Order)
		}
		for _, s := range strings.Split(settings, ", ") {
			field, rest, ok := strings.Cut(s, ": ")
			_, to, arrow := strings.Cut(rest, " -> ")
			if s == "" && settings == "" {
				continue
			}
			if !ok || !arrow {
				return assignment.JobConfig{}, "", fmt.Errorf("order %d in the history, %.80q, cannot be read", e.Order, e.Action)
			}
			values[field] = strings.Trim(to, `"`)
			if strings.HasPrefix(field, "limits.") && values[field] == "" {
				delete(values, field)
			}
		}
	}
	if !begun {
		return assignment.JobConfig{}, "", fmt.Errorf("the history does not go back to when the job was made: name a file with -f")
	}
	c, err := configOf(values)
	return c, "its history", err
}

// configOf reads settings by their names, such as balance.interval.
func configOf(values map[string]string) (assignment.JobConfig, error) {
	doc := map[string]any{}
	for field, value := range values {
		at := doc
		groups, name := settingOf(field)
		for _, group := range groups {
			inner, _ := at[group].(map[string]any)
			if inner == nil {
				inner = map[string]any{}
				at[group] = inner
			}
			at = inner
		}
		if name != "" {
			at[name] = &yaml.Node{Kind: yaml.ScalarNode, Value: value}
		}
	}
	text, err := yaml.Marshal(doc)
	if err != nil {
		return assignment.JobConfig{}, err
	}
	all, err := jobfile.Parse("history", text)
	if err != nil {
		return assignment.JobConfig{}, err
	}
	return all[0], nil
}

// settingOf is where in a job file a setting stands. Names of customers may have dots. One
// that has nothing but the name has no limit.
func settingOf(field string) (groups []string, name string) {
	rest, ok := strings.CutPrefix(field, "limits.")
	if !ok {
		group, name, nested := strings.Cut(field, ".")
		if !nested {
			return nil, field
		}
		return []string{group}, name
	}
	groups = []string{"limits"}
	if customer, ok := strings.CutPrefix(rest, "customers."); ok {
		groups = append(groups, "customers")
		rest = customer
	}
	for _, name := range []string{"rate", "max_criticality"} {
		if of, ok := strings.CutSuffix(rest, "."+name); ok {
			return append(groups, of), name
		}
	}
	return append(groups, rest), ""
}

func (o *storeOp) dumpCommand() *cobra.Command {
	var job string
	cmd := &cobra.Command{
		Use:   "dump --store URL [--job JOB]",
		Short: "Print the records of a store",
		Long: `Prints every record of a store, or of one job, in order of key: its key, its size and
what it says. With --json one object a line. Of assignments it gives the sizes; slicerctl
lookup and inspect show what is in them.`,
		Example: `  slicerctl store dump --store etcd://etcd-1:2379/slicer --job my-job
  slicerctl store dump --store pebble:///var/lib/slicer --json | jq .key`,
		Args: run.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if job != "" {
				if err := checkJob(job); err != nil {
					return err
				}
			}
			return o.on(cmd, pebblestore.ReadOnly, func(_ maintenance.Medium, s *maintenance.Snapshot) error {
				w := cmd.OutOrStdout()
				return maintenance.Dump(s, job, func(d maintenance.Dumped) error {
					if o.app.json {
						return printLine(w, d)
					}
					said := string(d.Value)
					if d.Error != "" {
						said = "fault: " + d.Error
					}
					_, err := fmt.Fprintf(w, "%s (%s) %s\n", d.Key, plural(d.Bytes, "byte"), said)
					return err
				})
			})
		},
	}
	cmd.Flags().StringVar(&job, "job", "", "`JOB` whose records to print; all if empty")
	return cmd
}

func (o *storeOp) repairCommand() *cobra.Command {
	var file string
	var dry, yes, drop bool
	cmd := &cobra.Command{
		Use:   "repair --store URL [-f FILE] [--dry-run] [--yes]",
		Short: "Mend what store check finds, where nothing has to be invented",
		Long: `Mends the faults that store check finds, as it says. A corrupt job config is written from the
YAML file of -f, else from the job's history if that goes back to when the job was made.
Assignments that cannot be read are left out, and the job goes back to the newest one that
can. Corrupt entries of histories, registrations, and records that nothing needs are deleted.
Overrides that are corrupt are left out only with --drop-overrides, since they may be what
holds a job still. What cannot be mended stays as it is.

Make a backup first: slicerctl store backup copies corrupt records, too.`,
		Example: `  slicerctl store repair --store pebble:///var/lib/slicer --dry-run
  slicerctl store repair --store etcd://etcd-1:2379/slicer -f my-job.yaml --yes`,
		Args: run.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts := maintenance.Options{Config: fromHistory, DropOverrides: drop}
			if file != "" {
				configs, err := readJobs(file, cmd.InOrStdin())
				if err != nil {
					return err
				}
				opts.Config = func(job string, orders []store.Entry) (assignment.JobConfig, string, error) {
					for _, c := range configs {
						if c.Name == job {
							return c, file, nil
						}
					}
					return fromHistory(job, orders)
				}
			}
			access := pebblestore.ReadWrite
			if dry {
				access = pebblestore.ReadOnly
			}
			return o.on(cmd, access, func(m maintenance.Medium, s *maintenance.Snapshot) error {
				opts.Lease = checkLease(m)
				return o.repair(cmd, m, s, opts, dry, yes)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML `file` with the configs of jobs whose own is corrupt; - is standard input")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be done")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&drop, "drop-overrides", false, "mend corrupt overrides by leaving all of the job's out")
	return cmd
}

func (o *storeOp) repair(cmd *cobra.Command, m maintenance.Medium, s *maintenance.Snapshot, opts maintenance.Options, dry, yes bool) error {
	r, err := maintenance.Check(cmd.Context(), m.Where(), s, opts)
	if err != nil {
		return err
	}
	mendable := 0
	for _, f := range r.Faults {
		if f.Mend != "" {
			mendable++
		}
	}
	if err := o.report(cmd.OutOrStdout(), r); err != nil {
		return err
	}
	if mendable > 0 && !dry {
		if err := agree(cmd, yes, "store "+m.Where(), fmt.Sprintf("Mend %s?", plural(mendable, "fault"))); err != nil {
			return err
		}
		if mendable, err = o.mend(cmd.Context(), m, r); err != nil {
			return fmt.Errorf("after %s: %w", plural(mendable, "mend"), err)
		}
	}
	if !o.app.json {
		done := "mended"
		if dry {
			done = "would be mended"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s, of which %d %s\n", plural(len(r.Faults), "fault"), mendable, done)
	}
	if left := len(r.Faults) - mendable; left > 0 {
		return &codedError{fmt.Sprintf("%s: %s cannot be mended", m.Where(), plural(left, "fault")), exitFaults}
	}
	return nil
}

func (o *storeOp) mend(ctx context.Context, m maintenance.Medium, r *maintenance.Report) (int, error) {
	return maintenance.Repair(ctx, m, r, nil)
}
