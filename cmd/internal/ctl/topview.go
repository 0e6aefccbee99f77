package ctl

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/health"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Bounds of what top shows.
const (
	maxHotShown       = 8
	maxDecisionsShown = 10
)

// topView is what top shows of one moment. Its JSON form is an interface: add, never rename.
type topView struct {
	At    time.Time `json:"at"`
	Job   jobStatus `json:"status"`
	Tasks []topTask `json:"tasks"`
	Hot   []hotView `json:"hot_slices"`
	// Round is the last one, if it was not in the view before.
	Round *roundView `json:"round,omitempty"`
	// Error says why all else is left out.
	Error string `json:"error,omitempty"`
}

// topTask is a task, of which the most loaded comes first.
type topTask struct {
	Name     string  `json:"name"`
	State    string  `json:"state"`
	Load     float64 `json:"load"`
	OfMean   float64 `json:"of_mean"`
	Capacity float64 `json:"capacity"`
	// Warming is how much of the capacity counts while it warms up, 0 when it does not.
	Warming float64 `json:"warming,omitempty"`
	CPU     float64 `json:"cpu_utilization"`
	Slices  int     `json:"slices"`
	Share   float64 `json:"share"`
	Shed    float64 `json:"shed_rate"`
	// Level is the criticality of what it refuses, empty for none.
	Level     string  `json:"level,omitempty"`
	Misrouted float64 `json:"misrouted_rate"`
	Standing  string  `json:"standing,omitempty"`
}

// hotView is a slice that the balancer has found to be hot: it has more replicas than the
// others, or is one key alone.
type hotView struct {
	Start string   `json:"start"`
	End   string   `json:"end"`
	Key   bool     `json:"key"`
	Tasks []string `json:"tasks"`
}

// newTop puts a view together; a may be nil.
func newTop(at time.Time, info *slicerv1.InspectJobResponse, a *assignment.Assignment) (*topView, error) {
	j, err := newJobStatus(info.GetJob(), info, "", false, at)
	if err != nil {
		return nil, err
	}
	v := &topView{At: at, Job: j, Tasks: []topTask{}, Hot: []hotView{}, Round: newRound(info.LastRound)}
	count, share := owned(a)
	for _, t := range info.Tasks {
		state := t.GetTask().GetState()
		if state == slicerv1.TaskState_TASK_STATE_DEAD {
			continue
		}
		name := t.GetTask().GetName()
		v.Tasks = append(v.Tasks, topTask{
			Name: name, State: assignment.TaskState(state).String(), Load: t.Load, OfMean: j.is.Of(t), Capacity: t.GetTask().GetWeight(),
			Warming: t.Warming, CPU: t.CpuUtilization, Slices: count[name], Share: share[name], Shed: t.ShedRate, Level: health.Level(t.Level), Misrouted: t.MisroutedRate, Standing: t.Standing,
		})
	}
	slices.SortStableFunc(v.Tasks, func(x, y topTask) int {
		return cmp.Or(cmp.Compare(y.OfMean, x.OfMean), strings.Compare(x.Name, y.Name))
	})
	v.Hot = append(v.Hot, hottest(a, j.MinReplicas)...)
	return v, nil
}

// owned is how many slices each task owns, and which share of the keyspace.
func owned(a *assignment.Assignment) (count map[string]int, share map[string]float64) {
	count, share = make(map[string]int), make(map[string]float64)
	if a == nil {
		return count, share
	}
	for s, r := range a.All() {
		for i := range r.Len() {
			name := r.At(i).Name
			count[name]++
			share[name] += s.Fraction()
		}
	}
	return count, share
}

// hottest are the slices with the most replicas above least, and of one key.
func hottest(a *assignment.Assignment, least int) (all []hotView) {
	if a == nil {
		return nil
	}
	for s, r := range a.All() {
		key := s.End == s.Start+1
		if r.Len() <= least && !key {
			continue
		}
		h := hotView{Start: s.Start.String(), End: s.End.String(), Key: key}
		for i := range r.Len() {
			h.Tasks = append(h.Tasks, r.At(i).Name)
		}
		all = append(all, h)
	}
	slices.SortStableFunc(all, func(x, y hotView) int { return cmp.Compare(len(y.Tasks), len(x.Tasks)) })
	return all[:min(len(all), maxHotShown)]
}

// line is the view on one line, and one for each decision of a new round.
func (v *topView) lines() []string {
	at := v.At.Local().Format("15:04:05.000") + " " + v.Job.Job
	if v.Error != "" {
		return []string{at + ": " + v.Error}
	}
	head := at + ": " + v.headline()
	if len(v.Job.Problems) > 0 {
		head += "; " + v.Job.Problems[0]
	}
	out := []string{head}
	if r := v.Round; r != nil {
		for i, d := range r.Decisions {
			if i == maxDecisionsShown {
				out = append(out, fmt.Sprintf("%s:   and %d decisions more", at, len(r.Decisions)-i))
				break
			}
			out = append(out, at+":   "+d.line())
		}
	}
	return out
}

func (v *topView) headline() string {
	s := fmt.Sprintf("%s, %s serve", v.Job.Health, plural(v.Job.Tasks.Serving, "task"))
	if v.Job.Wanted > 0 {
		s += fmt.Sprintf(", %d wanted", v.Job.Wanted)
	}
	s += ", load " + rate(v.Job.Load)
	if v.Job.Imbalance > 0 {
		s += fmt.Sprintf(", imbalance %.2f, floor %.2f, hottest %s", v.Job.Imbalance, v.Job.Floor, or(v.Job.Hottest, "-"))
	}
	if v.Job.Generation != 0 {
		s += fmt.Sprintf(", generation %d", v.Job.Generation)
		if !v.Job.Converged {
			s += " not held by all yet"
		}
	}
	return s
}

// line is a decision for people.
func (d *decisionView) line() string {
	s := d.Kind
	if d.Reason != "" {
		s += " (" + d.Reason + ")"
	}
	if d.Start != "" {
		s += " [" + d.Start + "," + d.End + ")"
	}
	switch {
	case d.From != "" && d.To != "":
		s += " " + d.From + " -> " + d.To
	case d.To != "":
		s += " to " + d.To
	case d.From != "":
		s += " from " + d.From
	}
	return s
}

// table is the tasks, as many as rows allows.
func (v *topView) table(rows int) []string {
	t := newTable("TASK", "STATE", ">LOAD", ">OF MEAN", ">CAPACITY", ">CPU", ">SLICES", ">SHARE", ">SHED", "LEVEL", ">MISROUTED", "")
	for i, k := range v.Tasks {
		if i == rows-1 && len(v.Tasks) > rows {
			t.row(fmt.Sprintf("and %d more", len(v.Tasks)-i), "", "", "", "", "", "", "", "", "", "", "")
			break
		}
		note := k.Standing
		capacity := fmt.Sprintf("%.4g", k.Capacity)
		if k.Warming > 0 {
			note = strings.TrimPrefix(note+", ", ", ") + fmt.Sprintf("warming, %.0f %%", 100*k.Warming)
		}
		t.row(k.Name, k.State, rate(k.Load), fmt.Sprintf("%.2f", k.OfMean), capacity, percent(k.CPU), strconv.Itoa(k.Slices), percent(k.Share), rate(k.Shed), or(k.Level, "-"), rate(k.Misrouted), note)
	}
	return t.lines()
}
