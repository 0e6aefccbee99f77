package ctl

import (
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// jobView is a job's config as JSON, by the names that a job file uses.
type jobView struct {
	Name             string        `json:"name"`
	Version          int64         `json:"version"`
	Mode             string        `json:"mode"`
	MinReplicas      int           `json:"min_replicas"`
	MaxReplicas      int           `json:"max_replicas"`
	LoadMetric       string        `json:"load_metric"`
	Zone             string        `json:"zone"`
	Store            string        `json:"store"`
	HeartbeatTimeout string        `json:"heartbeat_timeout"`
	LeaseDuration    string        `json:"lease_duration"`
	WarmUp           string        `json:"warm_up"`
	History          int           `json:"history"`
	Balance          balanceView   `json:"balance"`
	Damping          dampingView   `json:"damping"`
	Freeze           vanishView    `json:"freeze"`
	Overload         overloadView  `json:"overload"`
	XDS              xdsConfigView `json:"xds"`
	Limits           *limitsView   `json:"limits,omitempty"`
	MaxTasks         int           `json:"max_tasks"`
	// TargetUtilization is that at which the job has the tasks that it wants.
	TargetUtilization float64 `json:"target_utilization"`
	// Access has patterns of identities by verb.
	Access map[string][]string `json:"access,omitempty"`
	// CreatedBy is the identity that has created the job, as far as that is known.
	CreatedBy string `json:"created_by,omitempty"`
}

type balanceView struct {
	MinSlicesPerTask int     `json:"min_slices_per_task"`
	MaxSlicesPerTask int     `json:"max_slices_per_task"`
	MergeBudget      float64 `json:"merge_budget"`
	MoveBudget       float64 `json:"move_budget"`
	BandStart        float64 `json:"band_start"`
	BandStop         float64 `json:"band_stop"`
	Smoothing        float64 `json:"smoothing"`
	Interval         string  `json:"interval"`
	CPUThreshold     float64 `json:"cpu_threshold"`
}

type dampingView struct {
	HalfLife string  `json:"half_life"`
	Suppress float64 `json:"suppress"`
	Reuse    float64 `json:"reuse"`
	Most     float64 `json:"most"`
	Share    float64 `json:"share"`
}

type vanishView struct {
	Share    float64 `json:"share"`
	MinTasks int     `json:"min_tasks"`
	Window   string  `json:"window"`
	For      string  `json:"for"`
}

type overloadView struct {
	Admission          string `json:"admission"`
	DefaultCriticality string `json:"default_criticality"`

	RetryAttempts int     `json:"retry_attempts"`
	RetryBudget   float64 `json:"retry_budget"`
}

type xdsConfigView struct {
	Missing      string `json:"missing"`
	Retries      int    `json:"retries"`
	RetryBackoff string `json:"retry_backoff"`
}

// limitsView are the limits of customers. A rate of 0 is none.
type limitsView struct {
	Default   *limitView           `json:"default,omitempty"`
	Customers map[string]limitView `json:"customers,omitempty"`
}

type limitView struct {
	Rate           float64 `json:"rate,omitempty"`
	MaxCriticality string  `json:"max_criticality,omitempty"`
}

func newLimitsView(l assignment.Limits) *limitsView {
	if l == (assignment.Limits{}) {
		return nil
	}
	v := &limitsView{Customers: make(map[string]limitView)}
	view := func(x assignment.Limit) limitView { return limitView{x.Rate, x.MaxCriticality.String()} }
	if x := l.Others(); x != (assignment.Limit{}) {
		v.Default = new(view(x))
	}
	for name, x := range l.All() {
		v.Customers[name] = view(x)
	}
	return v
}

// newJobView shows none, which the config has as -1, as 0, as a job file does.
func newJobView(c assignment.JobConfig, version int64) jobView {
	b, d, z := c.Balance, c.Damping, c.Freeze
	return jobView{
		Name: c.Name, Version: version, Mode: c.Mode.String(), MinReplicas: c.MinReplicas, MaxReplicas: c.MaxReplicas,
		LoadMetric: c.LoadMetric, Zone: c.Zone, Store: c.Store,
		HeartbeatTimeout: span(c.HeartbeatTimeout), LeaseDuration: span(c.LeaseDuration),
		WarmUp: span(max(c.WarmUp, 0)), History: c.History,
		Damping: dampingView{HalfLife: span(d.HalfLife), Suppress: d.Suppress, Reuse: d.Reuse, Most: d.Most, Share: max(d.Share, 0)},
		Freeze:  vanishView{Share: z.Share, MinTasks: z.MinTasks, Window: span(z.Window), For: span(z.For)},
		Overload: overloadView{Admission: c.Overload.Admission.String(), DefaultCriticality: c.Overload.DefaultCriticality.String(),
			RetryAttempts: c.Overload.RetryAttempts, RetryBudget: max(c.Overload.RetryBudget, 0)},
		XDS:    xdsConfigView{Missing: c.XDS.Missing.String(), Retries: max(c.XDS.Retries, 0), RetryBackoff: span(c.XDS.RetryBackoff)},
		Limits: newLimitsView(c.Limits), MaxTasks: c.MaxTasks, TargetUtilization: c.TargetUtilization, Access: newAccessView(c.Access),
		Balance: balanceView{
			MinSlicesPerTask: b.MinSlicesPerTask, MaxSlicesPerTask: b.MaxSlicesPerTask,
			MergeBudget: max(b.MergeBudget, 0), MoveBudget: max(b.MoveBudget, 0), BandStart: b.BandStart, BandStop: b.BandStop,
			Smoothing: b.Smoothing, Interval: span(b.Interval), CPUThreshold: max(b.CPUThreshold, 0),
		},
	}
}

func newAccessView(a assignment.Access) map[string][]string {
	var v map[string][]string
	for verb, pattern := range a.All() {
		if v == nil {
			v = make(map[string][]string)
		}
		v[verb.String()] = append(v[verb.String()], pattern)
	}
	return v
}

func jobFromProto(j *slicerv1.Job) (assignment.JobConfig, int64, error) {
	c, err := wire.JobFromProto(j.GetConfig())
	return c, j.GetVersion(), err
}

// span prints a duration without the zero minutes and seconds of String.
func span(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0 && d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
