package ctl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/cmd/internal/health"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// inspectView is what inspect shows. Its JSON form is an interface: add, never rename.
type inspectView struct {
	Job        string     `json:"job"`
	Generation int64      `json:"generation"` // 0: there is no assignment yet
	Made       *time.Time `json:"made,omitempty"`
	Slices     int        `json:"slices"`
	StoreID    string     `json:"store_id,omitempty"`
	Tasks      []taskView `json:"tasks"`
	// Config is the job's, null where it is not known.
	Config *jobView `json:"config"`
	// Control is what only an assigner knows; null from a Backup Distributor.
	Control *controlView `json:"control"`
	// Through is the Distributor that was asked; null from a Backup Distributor.
	Through   *throughView `json:"through"`
	SliceList []sliceView  `json:"slice_list,omitempty"`
}

type controlView struct {
	Assigner  string `json:"assigner"`
	Preferred bool   `json:"preferred"`
	Holding   string `json:"holding,omitempty"`
	// Alarm is what is wrong with a clock: decisions are taken all the same.
	Alarm        string   `json:"alarm,omitempty"`
	Imbalance    float64  `json:"imbalance"` // 0: no load
	Floor        float64  `json:"floor"`
	Converged    bool     `json:"converged"`
	ConvergedGen int64    `json:"converged_generation"`
	Stragglers   []string `json:"stragglers,omitempty"`
	Distributors uint32   `json:"distributors"`
	Clerks       uint32   `json:"clerks"`
	Slicelets    uint32   `json:"slicelets"`
	// Progress says how many hold which generation, and how long the newest took.
	Progress  *progressView `json:"progress,omitempty"`
	LastRound *roundView    `json:"last_round,omitempty"`
	// Autosharding are the clients of gRPC's auto-sharding protocol, by Distributor.
	Autosharding []autoshardingView `json:"autosharding,omitempty"`
	// XDS are the xDS clients, by Distributor.
	XDS []xdsView `json:"xds,omitempty"`
	// Overrides are those in force.
	Overrides *overridesView `json:"overrides,omitempty"`
	// VanishedMS is for how long the assigner itself has kept the job frozen, because
	// a large part of its tasks fell silent at once; 0 when it does not.
	VanishedMS int64 `json:"vanished_ms,omitempty"`
	// Wanted is how many tasks the job would need for its target utilization; 0 if that is
	// not known.
	Wanted uint32 `json:"wanted_tasks"`
	// Leases are those of a job in consistent mode.
	Leases *leaseView `json:"leases,omitempty"`
}

type taskView struct {
	Name        string    `json:"name"`
	Address     string    `json:"address"`
	Zone        string    `json:"zone,omitempty"`
	State       string    `json:"state"`
	Incarnation string    `json:"incarnation"`
	Index       uint32    `json:"index"`
	Weight      float64   `json:"weight"`
	Slices      int       `json:"slices"`
	Share       float64   `json:"share"`
	Load        *loadView `json:"load,omitempty"`
	// Former is the process of this name that the newest assignment still knows, where
	// another one has taken its place: no task serves its slices.
	Former *formerView `json:"former,omitempty"`
	// Standing is why it is given no slices, empty when it may have some.
	Standing string `json:"standing,omitempty"`
	// DampedMS is for how long that is because it has failed too often.
	DampedMS int64 `json:"damped_ms,omitempty"`
	// Warming is how much of its capacity counts while it warms up, 0 to 1.
	Warming float64 `json:"warming,omitempty"`
}

type formerView struct {
	Incarnation string  `json:"incarnation"`
	Address     string  `json:"address"`
	Slices      int     `json:"slices"`
	Share       float64 `json:"share"`
}

type loadView struct {
	Rate            float64 `json:"rate"`
	OfMean          float64 `json:"of_mean"`
	Connected       bool    `json:"connected"`
	LastReportAgeMS int64   `json:"last_report_age_ms"`
	MisroutedRate   float64 `json:"misrouted_rate"`
	ShedRate        float64 `json:"shed_rate"`
	CPU             float64 `json:"cpu_utilization"`
	// Cores and Memory are what its process uses; 0 if that is not known.
	Cores  float64 `json:"cpu_cores"`
	Memory float64 `json:"memory_bytes"`
}

type sliceView struct {
	Start string   `json:"start"`
	End   string   `json:"end"`
	Share float64  `json:"share"`
	Tasks []string `json:"tasks"`
}

func newInspectView(job string, config *slicerv1.Job, a *assignment.Assignment, info *slicerv1.InspectJobResponse) (*inspectView, error) {
	v := &inspectView{Job: job, Tasks: []taskView{}}
	if config != nil {
		cfg, version, err := jobFromProto(config)
		if err != nil {
			return nil, err
		}
		jv := newJobView(cfg, version)
		v.Config = &jv
	}
	if a != nil {
		made := a.Generation().Time().UTC()
		v.Generation, v.Made, v.Slices = int64(a.Generation()), &made, a.NumSlices()
		v.StoreID = fmt.Sprintf("%016x", a.StoreID())
		v.count(a)
	}
	if info != nil {
		v.Control = newControl(info, v.Generation)
		is := health.Of(info, false, time.Now())
		for _, s := range info.Tasks {
			t, err := wire.TaskFromProto(s.GetTask())
			if err != nil {
				return nil, err
			}
			l := &loadView{Rate: s.Load, OfMean: is.Of(s), Connected: s.Connected, LastReportAgeMS: s.LastReportAgeMs,
				MisroutedRate: s.MisroutedRate, ShedRate: s.ShedRate, CPU: s.CpuUtilization, Cores: s.CpuCores, Memory: s.MemoryBytes}
			row := v.live(a, t, info.Generation >= v.Generation)
			row.Load, row.Standing, row.DampedMS, row.Warming = l, s.Standing, s.DampedMs, s.Warming
		}
	}
	slices.SortFunc(v.Tasks, func(x, y taskView) int {
		switch {
		case x.gone() == y.gone():
			return strings.Compare(x.Name, y.Name)
		case y.gone():
			return -1
		}
		return 1
	})
	return v, nil
}

func newTask(t assignment.Task) taskView {
	return taskView{Name: t.Name, Address: t.Address, Zone: t.Zone, State: t.State.String(),
		Incarnation: fmt.Sprintf("%016x", t.Incarnation), Index: t.Index, Weight: t.Weight}
}

// gone reports whether the task is dead and owns nothing.
func (k *taskView) gone() bool { return k.State == assignment.TaskDead.String() && k.Slices == 0 }

// live puts a task as an assigner knows it in the place of the one of its name in a,
// which may be nil. What another incarnation owns there is not its own, unless a is
// newer than what the assigner says.
func (v *inspectView) live(a *assignment.Assignment, t assignment.Task, newer bool) *taskView {
	row, pos, known := newTask(t), 0, false
	if a != nil {
		pos, known = a.Position(t.Name)
	}
	if !known {
		v.Tasks = append(v.Tasks, row)
		return &v.Tasks[len(v.Tasks)-1]
	}
	switch k := &v.Tasks[pos]; {
	case k.Incarnation == row.Incarnation || !newer:
		row.Slices, row.Share = k.Slices, k.Share
	case k.Slices > 0:
		row.Former = &formerView{k.Incarnation, k.Address, k.Slices, k.Share}
	}
	v.Tasks[pos] = row
	return &v.Tasks[pos]
}

// count fills in how much each task owns in the assignment.
func (v *inspectView) count(a *assignment.Assignment) {
	for _, t := range a.Tasks() {
		v.Tasks = append(v.Tasks, newTask(t))
	}
	v.SliceList = make([]sliceView, 0, a.NumSlices())
	for s, r := range a.All() {
		row := sliceView{Start: s.Start.String(), End: s.End.String(), Share: s.Fraction()}
		for i := range r.Len() {
			t := &v.Tasks[r.Position(i)]
			t.Slices++
			t.Share += s.Fraction()
			row.Tasks = append(row.Tasks, t.Name)
		}
		v.SliceList = append(v.SliceList, row)
	}
}

func newControl(info *slicerv1.InspectJobResponse, generation int64) *controlView {
	return &controlView{
		Assigner: info.AssignerId, Preferred: info.Preferred, Holding: info.Holding, Alarm: info.Alarm,
		Imbalance: info.Imbalance, Floor: info.Floor,
		Converged: info.ConvergedGeneration >= generation, ConvergedGen: info.ConvergedGeneration, Stragglers: info.Stragglers,
		Distributors: info.Distributors, Clerks: info.Clerks, Slicelets: info.Slicelets, Progress: newProgress(info.Progress),
		LastRound: newRound(info.LastRound), Autosharding: newAutosharding(info.Autosharding), XDS: newXDS(info.Xds), Leases: newLeases(info.Consistency),
		Overrides: newOverrides(info.Overrides), VanishedMS: info.VanishedMs, Wanted: info.WantedTasks,
	}
}

// only keeps one task, where one is asked for, and the slices where they are.
func (v *inspectView) only(task string, listed bool) error {
	if task != "" {
		kept := v.Tasks[:0]
		for _, t := range v.Tasks {
			if t.Name == task {
				kept = append(kept, t)
			}
		}
		if v.Tasks = kept; len(kept) == 0 {
			return notFoundf("job %q has no task %q", v.Job, task)
		}
		list := v.SliceList[:0]
		for _, s := range v.SliceList {
			for _, n := range s.Tasks {
				if n == task {
					list = append(list, s)
				}
			}
		}
		v.SliceList = list
	}
	if !listed {
		v.SliceList = nil
	}
	return nil
}
