package ctl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/health"
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

// jobStatus is one job of statusView.
type jobStatus struct {
	is *health.Job // nil where the assigner does not answer

	Job      string       `json:"job"`
	Health   health.State `json:"health"`
	Problems []string     `json:"problems,omitempty"`
	Mode     string       `json:"mode"`
	Store    string       `json:"store,omitempty"`

	Generation int64      `json:"generation"` // 0: there is no assignment
	Made       *time.Time `json:"made,omitempty"`
	// Converged: every connected subscriber holds the generation. Slow is how many
	// subscribers have not acknowledged for 5 s what they were sent.
	Converged bool   `json:"converged"`
	Slow      uint32 `json:"slow"`

	Tasks health.Tasks `json:"tasks"`
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

// newJobStatus is that of a job as listed, and as its assigner knows it: nil where it does
// not answer, and then failed says why. down reports whether the job's store does not answer.
func newJobStatus(listed *slicerv1.Job, info *slicerv1.InspectJobResponse, failed string, down bool, now time.Time) (jobStatus, error) {
	cfg, _, err := jobFromProto(listed)
	if err != nil {
		return jobStatus{}, err
	}
	j := jobStatus{Job: cfg.Name, Mode: cfg.Mode.String(), Store: cfg.Store, Target: cfg.TargetUtilization, MinReplicas: cfg.MinReplicas, MaxReplicas: cfg.MaxReplicas}
	switch {
	case info != nil:
		j.take(info, health.Of(info, down, now))
	case down:
		j.Health, j.Problems = health.StoreDown, []string{health.StoreProblem(cfg.Store, "")}
	default:
		j.Health, j.Problems = health.Unknown, []string{failed}
	}
	return j, nil
}

// well reports whether there is nothing to do about the job.
func (j *jobStatus) well() bool {
	return (j.Health == health.OK || j.Health == health.Empty) && len(j.Problems) == 0
}

func (j *jobStatus) take(info *slicerv1.InspectJobResponse, is *health.Job) {
	j.is = is
	if g := assignment.Generation(info.Generation); g != 0 {
		made := g.Time().UTC()
		j.Generation, j.Made = int64(g), &made
	}
	j.Converged = info.ConvergedGeneration >= info.Generation
	j.Slow = info.GetProgress().GetSlowTotal()
	j.Wanted, j.Imbalance, j.Floor = info.WantedTasks, info.Imbalance, info.Floor
	j.Overrides = newOverrides(info.Overrides)
	j.Health, j.Problems, j.Tasks, j.Load, j.Hottest, j.OfMean, j.Frozen = is.State, is.Problems, is.Tasks, is.Load, is.Hottest, is.OfMean, is.Frozen
	if info.Alarm != "" {
		j.Problems = append(j.Problems, info.Alarm)
	}
	for _, t := range info.Tasks {
		if t.GetTask().GetState() != slicerv1.TaskState_TASK_STATE_DEAD {
			j.Cores += t.CpuCores
			j.Memory += t.MemoryBytes
		}
	}
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
			v.Problems = append(v.Problems, health.StoreProblem(n, ""))
		}
	}
	v.Well = len(v.Problems) == 0
	for _, j := range jobs {
		v.Well = v.Well && j.well()
	}
	return v
}
