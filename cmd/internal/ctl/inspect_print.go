package ctl

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/health"
)

// print writes the view for people; now is what ages are counted to.
func (v *inspectView) print(w io.Writer, now time.Time) {
	fmt.Fprintf(w, "job %s", v.Job)
	if c := v.Config; c != nil {
		fmt.Fprintf(w, ": %s, %d to %d replicas, load in %s, config version %d", c.Mode, c.MinReplicas, c.MaxReplicas, c.LoadMetric, c.Version)
	}
	fmt.Fprintln(w)
	if v.Generation == 0 {
		fmt.Fprintln(w, "no assignment yet: no task has reported")
	} else {
		fmt.Fprintf(w, "generation %d, made %s ago, %s\n", v.Generation, age(now.Sub(*v.Made)), plural(v.Slices, "slice"))
	}
	if v.Control != nil {
		v.Control.print(w, now)
		if c := v.Control; c.Wanted > 0 && v.Config != nil {
			fmt.Fprintf(w, "wants %s, for a CPU utilization of %.0f %%\n", plural(int(c.Wanted), "task"), 100*v.Config.TargetUtilization)
		}
		if p := v.Control.Progress; p != nil {
			for _, l := range p.lines(v.Generation) {
				fmt.Fprintln(w, l)
			}
		}
	} else {
		fmt.Fprintln(w, "no assigner answers here: load and convergence are not known")
	}
	if s := v.Through.describe(); s != "" {
		fmt.Fprintln(w, s)
	}
	if len(v.Tasks) > 0 {
		fmt.Fprintln(w)
		v.printTasks(w)
		v.printStandings(w)
	}
	if len(v.SliceList) > 0 {
		fmt.Fprintln(w)
		t := newTable("START", "END", ">SHARE", "TASKS")
		for _, s := range v.SliceList {
			t.row(s.Start, s.End, percent(s.Share), strings.Join(s.Tasks, " "))
		}
		t.print(w)
	}
}

func (c *controlView) print(w io.Writer, now time.Time) {
	if c.Imbalance > 0 {
		fmt.Fprintf(w, "imbalance %.2f, floor %.2f\n", c.Imbalance, c.Floor)
	} else {
		fmt.Fprintln(w, "no load")
	}
	role := "preferred"
	if !c.Preferred {
		role = "not preferred"
	}
	fmt.Fprintf(w, "assigner %s (%s)", or(c.Assigner, "none"), role)
	if c.Holding != "" {
		fmt.Fprintf(w, ", on hold: %s", c.Holding)
	}
	fmt.Fprintln(w)
	if c.Alarm != "" {
		fmt.Fprintf(w, "alarm: %s\n", c.Alarm)
	}
	if c.Overrides != nil {
		c.Overrides.print(w, now)
	}
	if c.VanishedMS > 0 {
		fmt.Fprintf(w, "frozen by the assigner itself for %s, because a large part of the tasks fell silent at once; slicerctl unfreeze lifts that\n",
			age(time.Duration(c.VanishedMS)*time.Millisecond))
	}
	if l := c.Leases; l != nil {
		fmt.Fprintln(w, l.describe())
	}
	who := fmt.Sprintf("%s, %s, %s", plural(int(c.Distributors), "distributor"), plural(int(c.Clerks), "clerk"), plural(int(c.Slicelets), "slicelet"))
	if c.Converged {
		fmt.Fprintf(w, "converged: every connected subscriber holds this generation (%s)\n", who)
	} else {
		fmt.Fprintf(w, "not converged: every connected subscriber holds generation %d or newer (%s)", c.ConvergedGen, who)
		if len(c.Stragglers) > 0 {
			fmt.Fprintf(w, "; behind: %s", strings.Join(c.Stragglers, " "))
		}
		fmt.Fprintln(w)
	}
	for _, v := range c.Autosharding {
		fmt.Fprintln(w, v.describe())
	}
	for _, v := range c.XDS {
		fmt.Fprintln(w, v.describe())
	}
	if r := c.LastRound; r != nil {
		fmt.Fprintf(w, "last round %s ago: %s\n", age(now.Sub(r.At)), r.describe())
	}
}

// describe says what a round did, on one line.
func (r *roundView) describe() string {
	if len(r.Decisions) == 0 && r.KeyChurn == 0 {
		return or(r.summary(), "nothing to do")
	}
	return fmt.Sprintf("%s of keys and %s of load to other tasks: %s", percent(r.KeyChurn), percent(r.LoadChurn), r.summary())
}

func (v *inspectView) printTasks(w io.Writer) {
	here := v.Tasks[:v.here()]
	if len(here) == 0 {
		return
	}
	if v.Control == nil {
		t := newTable("TASK", "STATE", ">SLICES", ">SHARE", "ADDRESS", "ZONE")
		for _, k := range here {
			t.row(k.Name, k.State, strconv.Itoa(k.Slices), percent(k.Share), k.Address, or(k.Zone, "-"))
		}
		t.print(w)
		return
	}
	t := newTable("TASK", "STATE", ">SLICES", ">SHARE", ">LOAD", ">OF MEAN", ">MISROUTED", ">CPU", ">REPORT", "ADDRESS", "ZONE")
	for _, k := range here {
		cells := []string{"-", "-", "-", "-", "none"}
		if l := k.Load; l != nil && k.State == assignment.TaskDead.String() {
			cells[4] = reportAge(l) // what it carried when it died is no load now
		} else if l != nil {
			cells = []string{rate(l.Rate), fmt.Sprintf("%.2f", l.OfMean), rate(l.MisroutedRate), percent(l.CPU), reportAge(l)}
		}
		t.row(append(append([]string{k.Name, k.State, strconv.Itoa(k.Slices), percent(k.Share)}, cells...), k.Address, or(k.Zone, "-"))...)
	}
	t.print(w)
}

// here is how many of the tasks are not gone; they come first.
func (v *inspectView) here() int {
	n := slices.IndexFunc(v.Tasks, func(k taskView) bool { return k.gone() })
	if n < 0 {
		return len(v.Tasks)
	}
	return n
}

// maxGone is how many tasks that are gone are named.
const maxGone = 16

// printStandings says what the table does not: which tasks are given no slices and why,
// which slices no task serves, and which tasks are gone.
func (v *inspectView) printStandings(w io.Writer) {
	here := v.here()
	for _, k := range v.Tasks[:here] {
		if k.Standing != "" {
			fmt.Fprintf(w, "%s is given no slices: %s\n", k.Name, k.Standing)
		}
		if k.Warming > 0 {
			fmt.Fprintf(w, "%s is warming, %.0f %%\n", k.Name, 100*k.Warming)
		}
		if l := k.Load; l != nil && l.ShedRate >= health.LeastShed && k.State != assignment.TaskDead.String() {
			fmt.Fprintf(w, "%s refuses %s requests a second for want of room\n", k.Name, rate(l.ShedRate))
		}
		if f := k.Former; f != nil {
			fmt.Fprintf(w, "%s still with %s's former incarnation at %s, which is gone\n", are(f.Slices, f.Share), k.Name, f.Address)
		}
		if k.State == assignment.TaskDead.String() {
			fmt.Fprintf(w, "%s still with %s at %s, which is dead\n", are(k.Slices, k.Share), k.Name, k.Address)
		}
	}
	gone := v.Tasks[here:]
	if len(gone) == 0 {
		return
	}
	var names []string
	for _, k := range gone[:min(len(gone), maxGone)] {
		if l := k.Load; l != nil && l.LastReportAgeMS >= 0 {
			k.Name += " " + age(time.Duration(l.LastReportAgeMS)*time.Millisecond) + " ago"
		}
		names = append(names, k.Name)
	}
	if more := len(gone) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	fmt.Fprintf(w, "gone: %s\n", strings.Join(names, ", "))
}

func are(slices int, share float64) string {
	verb := "are"
	if slices == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%s (%s of keys) %s", plural(slices, "slice"), percent(share), verb)
}

func reportAge(l *loadView) string {
	s := age(time.Duration(l.LastReportAgeMS)*time.Millisecond) + " ago"
	if !l.Connected {
		s += ", gone"
	}
	return s
}
