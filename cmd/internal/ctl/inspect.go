package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// inspectTries is how often inspect looks for one generation in both of its
// sources, with a growing multiple of inspectPause in between.
const (
	inspectTries = 4
	inspectPause = 50 * time.Millisecond
)

func (a *app) inspectCommand() *cobra.Command {
	var listed bool
	var task string
	cmd := &cobra.Command{
		Use:   "inspect JOB [--task T] [--slices]",
		Short: "Show a job's tasks, their slices and load, and how even it is",
		Long: `Shows each task with its state, slices, share of the keyspace and load; how uneven
the load is; the generation and its age; which assigner decides; and how many of
the clerks and slicelets that are connected hold which generation, how long the
newest took from its write to half of them, to 99 % and to the last, and who is
slow (has not acknowledged for 5 s what it was sent). Where there are two tiers of
Distributors it says of which one the server is.

SHARE is the share of the keyspace that the task owns, alone or with other
replicas. LOAD is in the job's load units a second, smoothed; OF MEAN is that load
over the mean of the tasks that run and are not excluded, by capacity. imbalance is
the largest load over that mean; floor is the least that any assignment of whole keys
could reach. MISROUTED is requests a second for keys that are not the task's, CPU a
share of what its process may use. A Backup Distributor knows config and assignment
alone: load and all that concerns it are left out.`,
		Example: `  slicerctl inspect my-job
  slicerctl inspect my-job --task web-3 --slices
  slicerctl inspect my-job --json | jq '.tasks[] | {name, load}'`,
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			v, err := c.inspect(ctx, args[0])
			if err != nil {
				return err
			}
			if err := v.only(task, listed); err != nil {
				return err
			}
			if a.json {
				return printJSON(cmd.OutOrStdout(), v)
			}
			v.print(cmd.OutOrStdout(), time.Now())
			return nil
		}),
	}
	cmd.Flags().BoolVar(&listed, "slices", false, "list the slices with their tasks")
	cmd.Flags().StringVar(&task, "task", "", "show one `task` alone")
	must(cmd.RegisterFlagCompletionFunc("task", a.complete(jobs, tasks)))
	return cmd
}

// view is what inspect shows. Its JSON form is an interface: add, never rename.
type view struct {
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
	// Orders are those of operators that are in force.
	Orders *controlsView `json:"orders,omitempty"`
	// VanishedMS is for how long the assigner itself has kept the job frozen, because
	// a large part of its tasks fell silent at once; 0 when it does not.
	VanishedMS int64 `json:"vanished_ms,omitempty"`
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
	// Standing is why it is given no slices, empty when it may have some.
	Standing string `json:"standing,omitempty"`
	// DampedMS is for how long that is because it has failed too often.
	DampedMS int64 `json:"damped_ms,omitempty"`
}

type loadView struct {
	Rate            float64 `json:"rate"`
	OfMean          float64 `json:"of_mean"`
	Connected       bool    `json:"connected"`
	LastReportAgeMS int64   `json:"last_report_age_ms"`
	MisroutedRate   float64 `json:"misrouted_rate"`
	ShedRate        float64 `json:"shed_rate"`
	CPU             float64 `json:"cpu_utilization"`
}

type sliceView struct {
	Start string   `json:"start"`
	End   string   `json:"end"`
	Share float64  `json:"share"`
	Tasks []string `json:"tasks"`
}

// inspect asks for the assignment and for what the assigner knows, of one
// generation where that can be had: the Distributor may be about to hear of it.
func (c *client) inspect(ctx context.Context, job string) (*view, error) {
	var a *assignment.Assignment
	var info *slicerv1.InspectJobResponse
	for try := range inspectTries {
		var err error
		info, err = call(ctx, c, c.admin.InspectJob, &slicerv1.InspectJobRequest{Job: job})
		missing := status.Code(err) == codes.Unimplemented || status.Code(err) == codes.Unavailable
		if err != nil && !missing {
			return nil, err
		}
		if err == nil && info.Generation == 0 {
			break // nobody to assign anything to yet
		}
		// From a Backup Distributor, or while no assigner lives, the assignment alone.
		var ferr error
		if a, ferr = c.fetch(ctx, job); ferr != nil {
			if status.Code(err) == codes.Unavailable {
				ferr = err
			}
			return nil, ferr
		}
		if info == nil || info.Generation == int64(a.Generation()) {
			break
		}
		select {
		case <-time.After(time.Duration(try+1) * inspectPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	config := info.GetJob()
	if info == nil {
		// A Backup Distributor knows the config too; without it there is less to show.
		if got, err := call(ctx, c, c.admin.GetJob, &slicerv1.GetJobRequest{Name: job}); err == nil {
			config = got.Job
		}
	}
	v, err := newView(job, config, a, info)
	if err == nil {
		v.Through = c.through(ctx)
	}
	return v, err
}

func newView(job string, config *slicerv1.Job, a *assignment.Assignment, info *slicerv1.InspectJobResponse) (*view, error) {
	v := &view{Job: job, Tasks: []taskView{}}
	if config != nil {
		cfg, version, err := jobFromProto(config)
		if err != nil {
			return nil, err
		}
		jv := newJobView(cfg, version)
		v.Config = &jv
	}
	at := map[string]int{}
	put := func(t assignment.Task) int {
		i, ok := at[t.Name]
		if !ok {
			i = len(v.Tasks)
			at[t.Name] = i
			v.Tasks = append(v.Tasks, taskView{})
		}
		v.Tasks[i] = taskView{Name: t.Name, Address: t.Address, Zone: t.Zone, State: t.State.String(),
			Incarnation: fmt.Sprintf("%016x", t.Incarnation), Index: t.Index, Weight: t.Weight}
		return i
	}
	if a != nil {
		made := a.Generation().Time().UTC()
		v.Generation, v.Made, v.Slices = int64(a.Generation()), &made, a.NumSlices()
		v.StoreID = fmt.Sprintf("%016x", a.StoreID())
		for _, t := range a.Tasks() {
			put(t)
		}
	}
	if info != nil {
		v.Control = newControl(info, v.Generation)
		mean := meanLoad(info)
		for _, s := range info.Tasks {
			t, err := wire.TaskFromProto(s.GetTask())
			if err != nil {
				return nil, err
			}
			l := &loadView{Rate: s.Load, Connected: s.Connected, LastReportAgeMS: s.LastReportAgeMs,
				MisroutedRate: s.MisroutedRate, ShedRate: s.ShedRate, CPU: s.CpuUtilization}
			if mean > 0 {
				l.OfMean = s.Load / t.Weight / mean
			}
			row := &v.Tasks[put(t)]
			row.Load, row.Standing, row.DampedMS = l, s.Standing, s.DampedMs
		}
	}
	if a != nil {
		v.count(a, at)
	}
	slices.SortFunc(v.Tasks, func(x, y taskView) int { return strings.Compare(x.Name, y.Name) })
	return v, nil
}

// count fills in who owns how much.
func (v *view) count(a *assignment.Assignment, at map[string]int) {
	pos := make([]int, a.NumTasks())
	for i, t := range a.Tasks() {
		pos[i] = at[t.Name]
	}
	v.SliceList = make([]sliceView, 0, a.NumSlices())
	for s, r := range a.All() {
		row := sliceView{Start: s.Start.String(), End: s.End.String(), Share: s.Fraction()}
		for i := range r.Len() {
			t := &v.Tasks[pos[r.Position(i)]]
			t.Slices++
			t.Share += s.Fraction()
			row.Tasks = append(row.Tasks, t.Name)
		}
		v.SliceList = append(v.SliceList, row)
	}
}

// meanLoad is the load of a unit of capacity among the tasks that imbalance is
// measured over: those that run and are not excluded.
func meanLoad(info *slicerv1.InspectJobResponse) float64 {
	excluded := make(map[string]bool)
	for _, x := range info.GetControls().GetExcluded() {
		excluded[x.Task] = true
	}
	var load, weight float64
	for _, s := range info.Tasks {
		if s.GetTask().GetState() == slicerv1.TaskState_TASK_STATE_RUNNING && !excluded[s.Task.Name] {
			load += s.Load
			weight += s.Task.Weight
		}
	}
	if weight == 0 {
		return 0
	}
	return load / weight
}

func newControl(info *slicerv1.InspectJobResponse, generation int64) *controlView {
	return &controlView{
		Assigner: info.AssignerId, Preferred: info.Preferred, Holding: info.Holding, Alarm: info.Alarm,
		Imbalance: info.Imbalance, Floor: info.Floor,
		Converged: info.ConvergedGeneration >= generation, ConvergedGen: info.ConvergedGeneration, Stragglers: info.Stragglers,
		Distributors: info.Distributors, Clerks: info.Clerks, Slicelets: info.Slicelets, Progress: newProgress(info.Progress),
		LastRound: newRound(info.LastRound), Autosharding: newAutosharding(info.Autosharding), Leases: newLeases(info.Consistency),
		Orders: newControls(info.Controls), VanishedMS: info.VanishedMs,
	}
}

// only keeps one task, where one is asked for, and the slices where they are.
func (v *view) only(task string, listed bool) error {
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
