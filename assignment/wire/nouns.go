package wire

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

var errMissing = errors.New("missing")

// TaskToProto never fails.
func TaskToProto(t assignment.Task) *slicerv1.Task {
	return &slicerv1.Task{
		Name: t.Name, Incarnation: t.Incarnation, Address: t.Address, Zone: t.Zone,
		Index: t.Index, Weight: t.Weight, State: StateToProto(t.State),
	}
}

// TaskFromProto validates the task.
func TaskFromProto(m *slicerv1.Task) (assignment.Task, error) {
	t, err := taskFromProto(m)
	if err != nil {
		return assignment.Task{}, malformed("task", err)
	}
	return t, nil
}

func taskFromProto(m *slicerv1.Task) (t assignment.Task, err error) {
	if m == nil {
		return t, errMissing
	}
	t = assignment.Task{
		Name: m.Name, Incarnation: m.Incarnation, Address: m.Address, Zone: m.Zone,
		Index: m.Index, Weight: m.Weight,
	}
	if t.State, err = stateFromProto(m.State); err == nil {
		err = t.Validate()
	}
	return t, err
}

func tasksFromProto(ms []*slicerv1.Task) ([]assignment.Task, error) {
	tasks := make([]assignment.Task, len(ms))
	for i, m := range ms {
		t, err := taskFromProto(m)
		if err != nil {
			return nil, err
		}
		tasks[i] = t
	}
	return tasks, nil
}

// StateToProto never fails. The two enumerations count alike.
func StateToProto(s assignment.TaskState) slicerv1.TaskState { return slicerv1.TaskState(s) }

// StateFromProto refuses states that do not exist.
func StateFromProto(s slicerv1.TaskState) (assignment.TaskState, error) {
	state, err := stateFromProto(s)
	if err != nil {
		return 0, malformed("task", err)
	}
	return state, nil
}

func stateFromProto(s slicerv1.TaskState) (assignment.TaskState, error) {
	if s < 0 || s > slicerv1.TaskState_TASK_STATE_DEAD {
		return 0, &assignment.FieldError{Field: "task state", Value: int32(s), Allowed: "0 to 4"}
	}
	return assignment.TaskState(s), nil
}

// JobToProto never fails.
func JobToProto(c assignment.JobConfig) *slicerv1.JobConfig {
	b, d, z := c.Balance, c.Damping, c.Freeze
	return &slicerv1.JobConfig{
		Name: c.Name, MinReplicas: uint32(c.MinReplicas), MaxReplicas: uint32(c.MaxReplicas),
		Mode: slicerv1.Mode(c.Mode), LoadMetric: c.LoadMetric, Zone: c.Zone, Store: c.Store,
		HeartbeatTimeoutMs: c.HeartbeatTimeout.Milliseconds(), LeaseDurationMs: c.LeaseDuration.Milliseconds(),
		Balance: &slicerv1.BalanceConfig{
			MinSlicesPerTask: uint32(b.MinSlicesPerTask), MaxSlicesPerTask: uint32(b.MaxSlicesPerTask),
			MergeBudget: b.MergeBudget, MoveBudget: b.MoveBudget, BandStart: b.BandStart, BandStop: b.BandStop,
			Smoothing: b.Smoothing, IntervalMs: b.Interval.Milliseconds(), CpuThreshold: b.CPUThreshold,
		},
		History: uint32(c.History), WarmUpMs: c.WarmUp.Milliseconds(),
		Damping: &slicerv1.DampingConfig{
			HalfLifeMs: d.HalfLife.Milliseconds(), Suppress: d.Suppress, Reuse: d.Reuse, Most: d.Most, Share: d.Share,
		},
		Freeze:   &slicerv1.FreezeConfig{Share: z.Share, MinTasks: uint32(z.MinTasks), WindowMs: z.Window.Milliseconds(), ForMs: z.For.Milliseconds()},
		Overload: OverloadToProto(c.Overload), Limits: LimitsToProto(c.Limits),
		MaxTasks: uint32(c.MaxTasks), TargetUtilization: c.TargetUtilization, Access: AccessToProto(c.Access),
		Xds: XDSToProto(c.XDS),
	}
}

// JobFromProto fills in the defaults and validates the config. Its error is a
// *assignment.FieldError where a field is to blame, and matches ErrMalformed.
func JobFromProto(m *slicerv1.JobConfig) (assignment.JobConfig, error) {
	if m == nil {
		return assignment.JobConfig{}, malformed("job config", errMissing)
	}
	b, d, z := m.GetBalance(), m.GetDamping(), m.GetFreeze()
	c := assignment.JobConfig{
		Name: m.Name, MinReplicas: clampInt(m.MinReplicas), MaxReplicas: clampInt(m.MaxReplicas),
		LoadMetric: m.LoadMetric, Zone: m.Zone, Store: m.Store,
		HeartbeatTimeout: millis(m.HeartbeatTimeoutMs), LeaseDuration: millis(m.LeaseDurationMs),
		Balance: assignment.BalanceConfig{
			MinSlicesPerTask: clampInt(b.GetMinSlicesPerTask()), MaxSlicesPerTask: clampInt(b.GetMaxSlicesPerTask()),
			MergeBudget: b.GetMergeBudget(), MoveBudget: b.GetMoveBudget(), BandStart: b.GetBandStart(), BandStop: b.GetBandStop(),
			Smoothing: b.GetSmoothing(), Interval: millis(b.GetIntervalMs()), CPUThreshold: b.GetCpuThreshold(),
		},
		History: clampInt(m.History), WarmUp: millis(m.WarmUpMs),
		Damping: assignment.DampingConfig{
			HalfLife: millis(d.GetHalfLifeMs()), Suppress: d.GetSuppress(), Reuse: d.GetReuse(), Most: d.GetMost(), Share: d.GetShare(),
		},
		Freeze:   assignment.FreezeConfig{Share: z.GetShare(), MinTasks: clampInt(z.GetMinTasks()), Window: millis(z.GetWindowMs()), For: millis(z.GetForMs())},
		Overload: OverloadFromProto(m.Overload), MaxTasks: clampInt(m.MaxTasks), TargetUtilization: m.TargetUtilization,
		XDS: XDSFromProto(m.Xds),
	}
	if m.Mode < 0 || m.Mode > slicerv1.Mode_MODE_CONSISTENT {
		return c, malformed("job config", &assignment.FieldError{Field: "mode", Value: int32(m.Mode), Allowed: "affinity or consistent"})
	}
	c.Mode = assignment.Mode(m.Mode)
	var err error
	if c.Limits, err = limitsFromProto(m.Limits); err != nil {
		return c, malformed("job config", err)
	}
	if c.Access, err = accessFromProto(m.Access); err != nil {
		return c, malformed("job config", err)
	}
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return c, malformed("job config", err)
	}
	return c, nil
}

// OverloadToProto never fails.
func OverloadToProto(c assignment.OverloadConfig) *slicerv1.OverloadConfig {
	return &slicerv1.OverloadConfig{DefaultCriticality: slicerv1.Criticality(c.DefaultCriticality), Admission: slicerv1.Admission(c.Admission),
		RetryAttempts: uint32(max(c.RetryAttempts, 0)), RetryBudget: c.RetryBudget}
}

// OverloadFromProto neither fills in the defaults nor validates the config.
func OverloadFromProto(m *slicerv1.OverloadConfig) assignment.OverloadConfig {
	return assignment.OverloadConfig{
		DefaultCriticality: assignment.Criticality(min(uint32(m.GetDefaultCriticality()), math.MaxUint8)),
		Admission:          assignment.Admission(min(uint32(m.GetAdmission()), math.MaxUint8)),
		RetryAttempts:      clampInt(m.GetRetryAttempts()),
		RetryBudget:        m.GetRetryBudget(),
	}
}

// XDSToProto never fails.
func XDSToProto(c assignment.XDSConfig) *slicerv1.XdsConfig {
	return &slicerv1.XdsConfig{Missing: slicerv1.Missing(c.Missing), Retries: int32(c.Retries), RetryBackoffMs: c.RetryBackoff.Milliseconds()}
}

// XDSFromProto neither fills in the defaults nor validates the config.
func XDSFromProto(m *slicerv1.XdsConfig) assignment.XDSConfig {
	return assignment.XDSConfig{
		Missing: assignment.Missing(min(uint32(m.GetMissing()), math.MaxUint8)), Retries: int(m.GetRetries()), RetryBackoff: millis(m.GetRetryBackoffMs()),
	}
}

// LimitsToProto never fails. It returns nil if there are none.
func LimitsToProto(l assignment.Limits) *slicerv1.Limits {
	if l == (assignment.Limits{}) {
		return nil
	}
	m := new(slicerv1.Limits)
	if x := l.Others(); x != (assignment.Limit{}) {
		m.Others = LimitToProto("", x)
	}
	for name, x := range l.All() {
		m.Customers = append(m.Customers, LimitToProto(name, x))
	}
	return m
}

// LimitToProto never fails.
func LimitToProto(customer string, x assignment.Limit) *slicerv1.Limit {
	return &slicerv1.Limit{Customer: customer, Rate: x.Rate, MaxCriticality: slicerv1.Criticality(x.MaxCriticality)}
}

// LimitsFromProto validates the limits; none are no error.
func LimitsFromProto(m *slicerv1.Limits) (assignment.Limits, error) {
	l, err := limitsFromProto(m)
	if err != nil {
		return l, malformed("limits", err)
	}
	return l, nil
}

func limitsFromProto(m *slicerv1.Limits) (assignment.Limits, error) {
	limit := func(x *slicerv1.Limit) assignment.Limit {
		return assignment.Limit{Rate: x.GetRate(), MaxCriticality: assignment.Criticality(min(uint32(x.GetMaxCriticality()), math.MaxUint8))}
	}
	all := m.GetCustomers()
	if len(all) > assignment.MaxLimits {
		return assignment.Limits{}, &assignment.FieldError{Field: "limits.customers", Value: len(all), Allowed: fmt.Sprintf("at most %d customers", assignment.MaxLimits)}
	}
	named := make(map[string]assignment.Limit, len(all))
	for _, x := range all {
		if _, twice := named[x.GetCustomer()]; twice {
			return assignment.Limits{}, &assignment.FieldError{Field: "limits.customers", Value: x.GetCustomer(), Allowed: "each customer once"}
		}
		named[x.GetCustomer()] = limit(x)
	}
	return assignment.LimitsOf(limit(m.GetOthers()), named)
}

// clampInt keeps a number that no int can hold out of range instead of wrapping it.
func clampInt(v uint32) int { return int(min(v, math.MaxInt32)) }

// millis is a duration of milliseconds, out of any allowed range rather than
// wrapped when there are too many.
func millis(ms int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Millisecond)
	return time.Duration(min(max(ms, -most), most)) * time.Millisecond
}
