package ctl

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// print writes the view for people; now is what ages are counted to.
func (v *view) print(w io.Writer, now time.Time) {
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
		for _, k := range v.Tasks {
			if k.Standing != "" {
				fmt.Fprintf(w, "%s is given no slices: %s\n", k.Name, k.Standing)
			}
		}
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
		fmt.Fprintf(w, ", takes no decisions: %s", c.Holding)
	}
	fmt.Fprintln(w)
	if c.Alarm != "" {
		fmt.Fprintf(w, "alarm: %s\n", c.Alarm)
	}
	if c.Orders != nil {
		c.Orders.print(w, now)
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
		fmt.Fprintf(w, "converged: everyone connected holds this generation (%s)\n", who)
	} else {
		fmt.Fprintf(w, "not converged: everyone connected holds generation %d or newer (%s)", c.ConvergedGen, who)
		if len(c.Stragglers) > 0 {
			fmt.Fprintf(w, "; behind: %s", strings.Join(c.Stragglers, " "))
		}
		fmt.Fprintln(w)
	}
	for _, v := range c.Autosharding {
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

func (v *view) printTasks(w io.Writer) {
	if v.Control == nil {
		t := newTable("TASK", "STATE", ">SLICES", ">SHARE", "ADDRESS", "ZONE")
		for _, k := range v.Tasks {
			t.row(k.Name, k.State, strconv.Itoa(k.Slices), percent(k.Share), k.Address, or(k.Zone, "-"))
		}
		t.print(w)
		return
	}
	t := newTable("TASK", "STATE", ">SLICES", ">SHARE", ">LOAD", ">OF MEAN", ">MISROUTED", ">CPU", ">REPORT", "ADDRESS", "ZONE")
	for _, k := range v.Tasks {
		cells := []string{"-", "-", "-", "-", "none"}
		if l := k.Load; l != nil && k.State == assignment.TaskDead.String() {
			cells[4] = reportAge(l) // what it carried when it died is nobody's load now
		} else if l != nil {
			cells = []string{rate(l.Rate), fmt.Sprintf("%.2f", l.OfMean), rate(l.MisroutedRate), percent(l.CPU), reportAge(l)}
		}
		t.row(append(append([]string{k.Name, k.State, strconv.Itoa(k.Slices), percent(k.Share)}, cells...), k.Address, or(k.Zone, "-"))...)
	}
	t.print(w)
}

func reportAge(l *loadView) string {
	s := age(time.Duration(l.LastReportAgeMS)*time.Millisecond) + " ago"
	if !l.Connected {
		s += ", gone"
	}
	return s
}
