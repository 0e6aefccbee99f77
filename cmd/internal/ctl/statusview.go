package ctl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/uneven"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// statusView is what status shows. Its JSON form is an interface: add, never rename.
type statusView struct {
	// Well is what the exit code says: nothing is wrong with the control plane or a job.
	Well bool `json:"well"`
	// Problems are those of the control plane; a job has its own.
	Problems []string `json:"problems,omitempty"`
	// Assigner is the one that answers; empty when none could be reached.
	Assigner string `json:"assigner,omitempty"`
	// Assigners and Distributors are null where the caller may not see them.
	Assigners    []assignerView    `json:"assigners"`
	Distributors []distributorView `json:"distributors"`
	Stores       []storeView       `json:"stores"`
	Jobs         []jobStatus       `json:"jobs"`
}

type storeView struct {
	Name string `json:"name"` // empty: the only one
	Up   bool   `json:"up"`
}

// What status says of a job, in the order in which one hides the next.
const (
	jobStoreDown = "store down" // its store does not answer: nothing is decided
	jobUnknown   = "unknown"    // its assigner does not answer, or the server has none
	jobUndecided = "undecided"  // no assigner takes its decisions
	jobEmpty     = "empty"      // no task has ever reported
	jobDown      = "down"       // no task may be given requests
	jobFrozen    = "frozen"
	jobHot       = "hot"  // the load is uneven and could be less so, or tasks refuse requests
	jobSlow      = "slow" // subscribers do not acknowledge what they were sent
	jobOK        = "ok"
)

// jobStatus is one job of statusView.
type jobStatus struct {
	Job      string   `json:"job"`
	Health   string   `json:"health"`
	Problems []string `json:"problems,omitempty"`
	Mode     string   `json:"mode"`
	Store    string   `json:"store,omitempty"`

	Generation int64      `json:"generation"` // 0: there is no assignment
	Made       *time.Time `json:"made,omitempty"`
	// Converged: every connected subscriber holds the generation. Slow is how many
	// subscribers have not acknowledged for 5 s what they were sent.
	Converged bool   `json:"converged"`
	Slow      uint32 `json:"slow"`

	Tasks taskCounts `json:"tasks"`
	// Wanted is how many tasks the job would need for Target, its target utilization; 0 if
	// that is not known.
	Wanted uint32  `json:"wanted_tasks"`
	Target float64 `json:"target_utilization"`
	// Cores and Memory are what its tasks use together.
	Cores  float64 `json:"cpu_cores"`
	Memory float64 `json:"memory_bytes"`

	Load      float64 `json:"load"`
	Imbalance float64 `json:"imbalance"` // 0: no load
	Floor     float64 `json:"floor"`
	// Hottest is the task with the most load by capacity, OfMean that over the mean.
	Hottest     string         `json:"hottest,omitempty"`
	OfMean      float64        `json:"of_mean"`
	Frozen      bool           `json:"frozen"`
	MinReplicas int            `json:"min_replicas"`
	MaxReplicas int            `json:"max_replicas"`
	Overrides   *overridesView `json:"overrides,omitempty"`
}

// taskCounts are how many tasks there are in each state. Serving are those that run and are
// not excluded.
type taskCounts struct {
	Serving  int `json:"serving"`
	Starting int `json:"starting"`
	Draining int `json:"draining"`
	Excluded int `json:"excluded"`
	Dead     int `json:"dead"`
}

// living is how many are not dead.
func (c taskCounts) living() int { return c.Serving + c.Starting + c.Draining + c.Excluded }

// newJobStatus is that of a job as listed, and as its assigner knows it: nil where it does
// not answer, and then failed says why. down reports whether the job's store does not answer.
func newJobStatus(listed *slicerv1.Job, info *slicerv1.InspectJobResponse, failed string, down bool) (jobStatus, error) {
	cfg, _, err := jobFromProto(listed)
	if err != nil {
		return jobStatus{}, err
	}
	j := jobStatus{Job: cfg.Name, Mode: cfg.Mode.String(), Store: cfg.Store, Target: cfg.TargetUtilization, MinReplicas: cfg.MinReplicas, MaxReplicas: cfg.MaxReplicas}
	if info != nil {
		j.take(info)
	}
	switch {
	case down:
		j.judge(jobStoreDown, fmt.Sprintf("store %s does not answer", or(cfg.Store, "default")))
	case info == nil:
		j.judge(jobUnknown, failed)
	case !info.Preferred:
		j.judge(jobUndecided, or(info.Holding, "no assigner decides"))
	case info.Generation == 0 && j.Tasks.living() == 0:
		j.judge(jobEmpty, "")
	case j.Tasks.Serving == 0:
		j.judge(jobDown, fmt.Sprintf("no task serves: %d start, %d drain, %d are excluded, %d are dead", j.Tasks.Starting, j.Tasks.Draining, j.Tasks.Excluded, j.Tasks.Dead))
	case j.Frozen:
		j.judge(jobFrozen, or(info.Holding, "frozen"))
	case info.Holding != "":
		j.judge(jobUndecided, info.Holding)
	}
	for _, t := range info.GetTasks() {
		if s := t.GetShedRate(); s >= leastShed && t.GetTask().GetState() != slicerv1.TaskState_TASK_STATE_DEAD {
			j.judge(jobHot, fmt.Sprintf("%s refuses %s requests a second for want of room", t.GetTask().GetName(), rate(s)))
		}
	}
	if j.Floor > 0 && j.Imbalance > uneven.Above*j.Floor && uneven.Measurable(info, cfg.LoadMetric, j.Load, j.Tasks.Serving) {
		j.judge(jobHot, fmt.Sprintf("%s carries %.2f times the mean, and could carry %.2f", j.Hottest, j.OfMean, j.Floor))
	}
	if j.Slow > 0 {
		j.judge(jobSlow, fmt.Sprintf("%s not acknowledged for 5s what was sent", have(int(j.Slow), "subscriber")))
	}
	if info.GetAlarm() != "" {
		j.Problems = append(j.Problems, info.Alarm)
	}
	if j.Health == "" {
		j.Health = jobOK
	}
	return j, nil
}

func have(n int, one string) string {
	if n == 1 {
		return "1 " + one + " has"
	}
	return plural(n, one) + " have"
}

// judge notes a problem; the first one is the job's health.
func (j *jobStatus) judge(health, problem string) {
	if j.Health == "" {
		j.Health = health
	}
	if problem != "" {
		j.Problems = append(j.Problems, problem)
	}
}

// well reports whether there is nothing to do about the job.
func (j *jobStatus) well() bool {
	return (j.Health == jobOK || j.Health == jobEmpty) && len(j.Problems) == 0
}

func (j *jobStatus) take(info *slicerv1.InspectJobResponse) {
	if g := assignment.Generation(info.Generation); g != 0 {
		made := g.Time().UTC()
		j.Generation, j.Made = int64(g), &made
	}
	j.Converged = info.ConvergedGeneration >= info.Generation
	j.Slow = info.GetProgress().GetSlowTotal()
	j.Wanted, j.Imbalance, j.Floor = info.WantedTasks, info.Imbalance, info.Floor
	j.Overrides = newOverrides(info.Overrides)
	j.Frozen = info.VanishedMs > 0 || info.GetOverrides().GetFreeze() != nil
	excluded := make(map[string]bool)
	for _, x := range info.GetOverrides().GetExcluded() {
		excluded[x.GetTask()] = true
	}
	mean := meanLoad(info)
	for _, t := range info.Tasks {
		switch s := t.GetTask().GetState(); {
		case s == slicerv1.TaskState_TASK_STATE_DEAD:
			j.Tasks.Dead++
			continue
		case excluded[t.GetTask().GetName()]:
			j.Tasks.Excluded++
		case s == slicerv1.TaskState_TASK_STATE_RUNNING:
			j.Tasks.Serving++
			if of := ofMean(t, mean); of > j.OfMean {
				j.Hottest, j.OfMean = t.Task.Name, of
			}
		case s == slicerv1.TaskState_TASK_STATE_DRAINING:
			j.Tasks.Draining++
		default:
			j.Tasks.Starting++
		}
		j.Load += t.Load
		j.Cores += t.CpuCores
		j.Memory += t.MemoryBytes
	}
}

// ofMean is a task's load by capacity over the mean of the job; 0 if there is none.
func ofMean(t *slicerv1.TaskStatus, mean float64) float64 {
	if w := t.GetTask().GetWeight(); w > 0 && mean > 0 {
		return t.Load / w / mean
	}
	return 0
}

// overrides are those in force, in a few words.
func (j *jobStatus) overrides() string {
	v := j.Overrides
	if v == nil {
		return "-"
	}
	var parts []string
	if v.Freeze != nil {
		parts = append(parts, "freeze")
	}
	for _, x := range []struct {
		n    int
		what string
	}{{len(v.Pins), "pin"}, {len(v.Excluded), "exclusion"}, {len(v.Drained), "drain"}} {
		if x.n > 0 {
			parts = append(parts, plural(x.n, x.what))
		}
	}
	if v.Rollback != 0 {
		parts = append(parts, "rollback")
	}
	return strings.Join(parts, ", ")
}

// newStatus puts a control plane's view together. plane is nil where the caller may not see
// the control plane, or the server has none.
func newStatus(plane *assignersView, jobs []jobStatus, unanswered []string) *statusView {
	v := &statusView{Jobs: jobs, Stores: []storeView{}}
	names := slices.Clone(unanswered)
	for _, j := range jobs {
		names = append(names, j.Store)
	}
	if plane != nil {
		v.Assigner, v.Assigners, v.Distributors = plane.Assigner, plane.Assigners, plane.Distributors
		for _, a := range plane.Assigners {
			names = append(names, a.Stores...)
		}
		if plane.Assigner == "" {
			v.Problems = append(v.Problems, fmt.Sprintf("no assigner answers: distributor %s does", plane.Distributor))
		}
		for _, j := range plane.Jobs {
			if j.Disputed {
				v.Problems = append(v.Problems, fmt.Sprintf("distributors differ in which assigner they prefer for job %s, or prefer another than %s", j.Job, or(j.Chosen, "none")))
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > 1 && names[0] == "" {
		names = names[1:] // jobs that do not name one are in the first of those that are named
	}
	for _, n := range names {
		up := !slices.Contains(unanswered, n)
		if v.Stores = append(v.Stores, storeView{n, up}); !up {
			v.Problems = append(v.Problems, fmt.Sprintf("store %s does not answer", or(n, "default")))
		}
	}
	v.Well = len(v.Problems) == 0
	for _, j := range jobs {
		v.Well = v.Well && j.well()
	}
	return v
}
