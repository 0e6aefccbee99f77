package assignment

import (
	"fmt"
	"time"
)

// Mode is what a job's tasks may believe about the owner of a key.
type Mode uint8

const (
	// Affinity: usually one view, briefly several while an assignment spreads.
	Affinity Mode = iota + 1
	// Consistent: at most one task ever believes that it owns a key.
	Consistent
)

func (m Mode) String() string {
	switch m {
	case Affinity:
		return "affinity"
	case Consistent:
		return "consistent"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ParseMode reads what String prints.
func ParseMode(s string) (Mode, error) {
	switch s {
	case "affinity":
		return Affinity, nil
	case "consistent":
		return Consistent, nil
	}
	return 0, &FieldError{"mode", s, "affinity or consistent"}
}

// Load metrics.
const (
	LoadRequests = "requests" // requests a second
	LoadCPU      = "cpu"      // process CPU, shared out by how long requests take
	LoadCustom   = "custom"   // what the application reports
)

// JobConfig is what an operator sets for a job. Zero values stand for the
// defaults, which WithDefaults fills in.
type JobConfig struct {
	// Name is an RFC 1123 label.
	Name string
	// MinReplicas and MaxReplicas bound the tasks of each slice, 1 to 1024.
	// Defaults 1 and 10; in consistent mode both are 1.
	MinReplicas, MaxReplicas int
	// Mode defaults to Affinity.
	Mode Mode
	// LoadMetric is requests (the default), cpu or custom.
	LoadMetric string
	// Zone is where the job runs; an assigner of the same zone is preferred.
	Zone string
	// Store names which of the assigners' stores keeps the job; empty is the first.
	Store string
	// HeartbeatTimeout is how long a task's reports may stop before it is dead:
	// 500 ms to 10 min, default 5 s.
	HeartbeatTimeout time.Duration
	// LeaseDuration is how long the leases of consistent mode last: 1 s to 10 min, default 5 s.
	LeaseDuration time.Duration
	// WarmUp is how long a new task takes to come to its full share of the load: 1 ms
	// to 1 h, default 30 s; NoWarmUp stands for 0, which gives it all at once.
	WarmUp time.Duration
	// History is how many generations and how many orders of operators are kept, with the
	// operator, the time and the reason: 1 to MaxHistory, default 100.
	History  int
	Balance  BalanceConfig
	Damping  DampingConfig
	Freeze   FreezeConfig
	Overload OverloadConfig
	XDS      XDSConfig
	// Limits are how much each customer may use.
	Limits Limits
	// MaxTasks is how many tasks may live at once, 1 to the constant MaxTasks, default
	// 10,000.
	MaxTasks int
	// TargetUtilization is the share of the CPU that tasks may use at which the job has the
	// tasks that it wants: .05 to 1, default .6. Nothing is moved for its sake: it is for what
	// adds and removes tasks.
	TargetUtilization float64
	// Access says who may do what with the job.
	Access Access
}

// OverloadConfig says what becomes of requests when there are too many.
type OverloadConfig struct {
	// DefaultCriticality is that of requests that do not say theirs; default Critical.
	DefaultCriticality Criticality
	// Admission is whether tasks refuse requests that they have no room for; default
	// AdmissionOn.
	Admission Admission
	// RetryAttempts is how many tasks a request is sent to at most since they have no room,
	// 1 to MaxRetryAttempts, default 3. RetryBudget is how many such attempts, and those
	// because a task was not reached, there may be for each of a client's requests: above 0
	// to 1, default .1; NoRetries is none.
	RetryAttempts int
	RetryBudget   float64
}

const (
	// MaxRetryAttempts is the most that RetryAttempts may be.
	MaxRetryAttempts = 4
	// NoRetries is the RetryBudget of a job whose requests are not sent to other tasks.
	NoRetries = -1.0
)

func (c OverloadConfig) validAttempts() bool { return within(c.RetryAttempts, 1, MaxRetryAttempts) }

func (c OverloadConfig) validBudget() bool {
	return c.RetryBudget > 0 && c.RetryBudget <= 1 || c.RetryBudget == NoRetries
}

// OrDefaults returns c with the defaults in place of what is not valid.
func (c OverloadConfig) OrDefaults() OverloadConfig {
	if !c.DefaultCriticality.Valid() {
		c.DefaultCriticality = Critical
	}
	if !c.Admission.Valid() {
		c.Admission = AdmissionOn
	}
	// (Site Reliability Engineering, chapter 21, "Deciding to Retry".)
	if !c.validAttempts() {
		c.RetryAttempts = 3
	}
	if !c.validBudget() {
		c.RetryBudget = .1
	}
	return c
}

// NoWarmUp is the WarmUp of a job whose new tasks do not warm up.
const NoWarmUp = -time.Millisecond

// MaxHistory is the most generations and orders that a job's history may keep.
const MaxHistory = 1000

// DampingConfig says how long a task that keeps failing has to stay up before it
// may own slices again. Each time that it dies, or restarts without having
// drained, adds 1 to its penalty, which halves every HalfLife. It is the scheme by
// which routers damp flapping routes (RFC 2439).
type DampingConfig struct {
	// HalfLife of the penalty: 1 s to 24 h, default 1 min.
	HalfLife time.Duration
	// Suppress is the penalty from which on a task owns nothing: above 1, to 1000;
	// default 3.
	Suppress float64
	// Reuse is the penalty below which it may own slices again: above 0, below
	// Suppress; default half of Suppress.
	Reuse float64
	// Most bounds the penalty and so how long a task waits: Suppress to 1000,
	// default twice Suppress.
	Most float64
	// Share of the job's living tasks that may be damped at once, one in any case while
	// another runs: 0 to 1, default .25; -1 stands for 0, which damps none. When no other
	// task runs the damped own slices all the same.
	Share float64
}

// FreezeConfig says when so many tasks fall silent at once that the assigner suspects the
// network, or itself, and declares none dead for a while: the job is frozen.
type FreezeConfig struct {
	// Share of the job's tasks: when more fall silent within Window, the job freezes.
	// Above 0, to 1; default .5. 1 never freezes.
	Share float64
	// MinTasks is the smallest job that freezes: 1 to MaxTasks, default 4.
	MinTasks int
	// Window is the time within which they fall silent: 500 ms to 1 h, default twice
	// the heartbeat timeout.
	Window time.Duration
	// For is how long a freeze lasts unless the tasks return or an operator lifts it:
	// 1 s to 24 h, default 3 min. That is about what a switch takes to start again. Were
	// it shorter, the few tasks within reach would get the keys of all, only to give
	// them back. If the tasks are dead their keys have no owner for so long; but then
	// less than half of the job is left, which could hardly bear the load of all.
	For time.Duration
}

// BalanceConfig tunes the balancing of a job. The constants are those of the
// Slicer paper, section 4.4.1, except where noted.
type BalanceConfig struct {
	// MinSlicesPerTask and MaxSlicesPerTask bound the slices of the whole job,
	// in aggregate: merging stops at the one, splitting at the other. 1 to 1000,
	// defaults 50 and 150.
	MinSlicesPerTask, MaxSlicesPerTask int
	// MergeBudget and MoveBudget are the shares of the keyspace that one round
	// may reassign by merging and by moving. 0 to 1, defaults .01 and .09;
	// -1 stands for 0. MoveBudget does not bound what tasks are given that join while most
	// are new and no load is known: then keys cost nothing to move.
	MergeBudget, MoveBudget float64
	// BandStart is the imbalance above which moving begins and BandStop the one
	// at which it stops (not in the paper). 1 to 100, defaults 1.03 and 1.01.
	BandStart, BandStop float64
	// Smoothing is the weight of the newest measurement of a slice's load in its
	// moving average (not in the paper). Above 0, to 1; default .25.
	Smoothing float64
	// Interval is the time between rounds: 100 ms to 1 h, default 5 s.
	Interval time.Duration
	// CPUThreshold is the largest task CPU utilization below which a job that is
	// balanced by CPU is left alone. 0 to 1, default .25; -1 stands for 0.
	CPUThreshold float64
}

// WithDefaults returns the config with zero values replaced by the defaults.
func (c JobConfig) WithDefaults() JobConfig {
	if c.Mode == 0 {
		c.Mode = Affinity
	}
	setDefault(&c.MinReplicas, 1)
	if c.Mode == Consistent {
		setDefault(&c.MaxReplicas, 1)
	} else {
		setDefault(&c.MaxReplicas, max(10, c.MinReplicas))
	}
	setDefault(&c.LoadMetric, LoadRequests)
	setDefault(&c.HeartbeatTimeout, 5*time.Second)
	setDefault(&c.LeaseDuration, 5*time.Second)
	setDefault(&c.WarmUp, 30*time.Second)
	setDefault(&c.History, 100)
	setDefault(&c.MaxTasks, 10000)
	// Of three zones one may be lost, and the tasks of the others are at .9.
	setDefault(&c.TargetUtilization, .6)
	c.Damping.setDefaults()
	setDefault(&c.Freeze.Share, .5)
	setDefault(&c.Freeze.MinTasks, 4)
	setDefault(&c.Freeze.Window, min(2*c.HeartbeatTimeout, time.Hour))
	setDefault(&c.Freeze.For, 3*time.Minute)
	o := OverloadConfig{}.OrDefaults()
	setDefault(&c.Overload.DefaultCriticality, o.DefaultCriticality)
	setDefault(&c.Overload.Admission, o.Admission)
	setDefault(&c.Overload.RetryAttempts, o.RetryAttempts)
	setDefault(&c.Overload.RetryBudget, o.RetryBudget)
	x := XDSConfig{}.OrDefaults()
	setDefault(&c.XDS.Missing, x.Missing)
	setDefault(&c.XDS.Retries, x.Retries)
	setDefault(&c.XDS.RetryBackoff, x.RetryBackoff)
	b := &c.Balance
	// A default gives way to its partner, so that no error names a field that
	// was left out.
	least := 50
	if b.MaxSlicesPerTask > 0 {
		least = min(least, b.MaxSlicesPerTask)
	}
	setDefault(&b.MinSlicesPerTask, least)
	setDefault(&b.MaxSlicesPerTask, min(max(150, 3*b.MinSlicesPerTask), 1000))
	setDefault(&b.MergeBudget, .01)
	setDefault(&b.MoveBudget, .09)
	start := 1.03
	if b.BandStop > start {
		start = min(b.BandStop, 100)
	}
	setDefault(&b.BandStart, start)
	setDefault(&b.BandStop, min(1.01, b.BandStart))
	setDefault(&b.Smoothing, .25)
	setDefault(&b.Interval, 5*time.Second)
	setDefault(&b.CPUThreshold, .25)
	return c
}

func (d *DampingConfig) setDefaults() {
	setDefault(&d.HalfLife, time.Minute)
	// Defaults give way to what is given, as above.
	suppress := 3.
	switch {
	case d.Reuse >= suppress:
		suppress = min(2*d.Reuse, 1000)
	case d.Most > 1 && d.Most < suppress:
		suppress = d.Most
	}
	setDefault(&d.Suppress, suppress)
	setDefault(&d.Reuse, d.Suppress/2)
	setDefault(&d.Most, min(2*d.Suppress, 1000))
	setDefault(&d.Share, .25)
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Validate returns a *FieldError for the first field that is not allowed. It
// expects a config that has its defaults.
func (c JobConfig) Validate() error {
	if err := ValidateJobName(c.Name); err != nil {
		return err
	}
	b, d, z := c.Balance, c.Damping, c.Freeze
	for _, f := range []struct {
		ok      bool
		field   string
		value   any
		allowed string
	}{
		{c.Mode == Affinity || c.Mode == Consistent, "mode", c.Mode, "affinity or consistent"},
		{c.MinReplicas >= 1 && c.MinReplicas <= MaxReplicas, "min_replicas", c.MinReplicas, fmt.Sprintf("1 to %d", MaxReplicas)},
		{c.MaxReplicas >= 1 && c.MaxReplicas <= MaxReplicas, "max_replicas", c.MaxReplicas, fmt.Sprintf("1 to %d", MaxReplicas)},
		{c.MinReplicas <= c.MaxReplicas, "min_replicas", c.MinReplicas, fmt.Sprintf("at most max_replicas, which is %d", c.MaxReplicas)},
		{c.Mode != Consistent || c.MaxReplicas == 1, "max_replicas", c.MaxReplicas, "1 in consistent mode, where at most one task owns a key"},
		{c.LoadMetric == LoadRequests || c.LoadMetric == LoadCPU || c.LoadMetric == LoadCustom, "load_metric", c.LoadMetric, "requests, cpu or custom"},
		{c.Zone == "" || ValidToken(c.Zone, MaxZoneLen), "zone", c.Zone, "at most 63 printable ASCII characters without space or slash"},
		{c.Store == "" || ValidToken(c.Store, MaxZoneLen), "store", c.Store, "at most 63 printable ASCII characters without space or slash"},
		{within(c.HeartbeatTimeout, 500*time.Millisecond, 10*time.Minute) && whole(c.HeartbeatTimeout), "heartbeat_timeout", c.HeartbeatTimeout, "500ms to 10m, in whole milliseconds"},
		{within(c.LeaseDuration, time.Second, 10*time.Minute) && whole(c.LeaseDuration), "lease_duration", c.LeaseDuration, "1s to 10m, in whole milliseconds"},
		{(within(c.WarmUp, 0, time.Hour) || c.WarmUp == NoWarmUp) && whole(c.WarmUp), "warm_up", c.WarmUp, "0 to 1h, in whole milliseconds"},
		{within(c.History, 1, MaxHistory), "history", c.History, fmt.Sprintf("1 to %d", MaxHistory)},
		{within(c.MaxTasks, 1, MaxTasks), "max_tasks", c.MaxTasks, fmt.Sprintf("1 to %d", MaxTasks)},
		{within(c.TargetUtilization, .05, 1), "target_utilization", c.TargetUtilization, "0.05 to 1, a share of the CPU that tasks may use"},
		{within(b.MinSlicesPerTask, 1, 1000), "balance.min_slices_per_task", b.MinSlicesPerTask, "1 to 1000"},
		{within(b.MaxSlicesPerTask, 1, 1000), "balance.max_slices_per_task", b.MaxSlicesPerTask, "1 to 1000"},
		{b.MinSlicesPerTask <= b.MaxSlicesPerTask, "balance.min_slices_per_task", b.MinSlicesPerTask, fmt.Sprintf("at most max_slices_per_task, which is %d", b.MaxSlicesPerTask)},
		{within(b.MergeBudget, 0, 1) || b.MergeBudget == -1, "balance.merge_budget", b.MergeBudget, "0 to 1, a share of the keyspace"},
		{within(b.MoveBudget, 0, 1) || b.MoveBudget == -1, "balance.move_budget", b.MoveBudget, "0 to 1, a share of the keyspace"},
		{within(b.BandStart, 1, 100), "balance.band_start", b.BandStart, "1 to 100"},
		{within(b.BandStop, 1, 100), "balance.band_stop", b.BandStop, "1 to 100"},
		{b.BandStop <= b.BandStart, "balance.band_stop", b.BandStop, fmt.Sprintf("at most band_start, which is %g", b.BandStart)},
		{b.Smoothing > 0 && b.Smoothing <= 1, "balance.smoothing", b.Smoothing, "above 0, to 1"},
		{within(b.Interval, 100*time.Millisecond, time.Hour) && whole(b.Interval), "balance.interval", b.Interval, "100ms to 1h, in whole milliseconds"},
		{within(b.CPUThreshold, 0, 1) || b.CPUThreshold == -1, "balance.cpu_threshold", b.CPUThreshold, "0 to 1"},
		{within(d.HalfLife, time.Second, 24*time.Hour) && whole(d.HalfLife), "damping.half_life", d.HalfLife, "1s to 24h, in whole milliseconds"},
		{d.Suppress > 1 && d.Suppress <= 1000, "damping.suppress", d.Suppress, "above 1, to 1000"},
		{d.Reuse > 0 && d.Reuse < d.Suppress, "damping.reuse", d.Reuse, fmt.Sprintf("above 0, below suppress, which is %g", d.Suppress)},
		{within(d.Most, d.Suppress, 1000), "damping.most", d.Most, fmt.Sprintf("suppress, which is %g, to 1000", d.Suppress)},
		{within(d.Share, 0, 1) || d.Share == -1, "damping.share", d.Share, "0 to 1, a share of the tasks"},
		{z.Share > 0 && z.Share <= 1, "freeze.share", z.Share, "above 0, to 1, a share of the tasks; 1 never freezes"},
		{within(z.MinTasks, 1, MaxTasks), "freeze.min_tasks", z.MinTasks, fmt.Sprintf("1 to %d", MaxTasks)},
		{within(z.Window, 500*time.Millisecond, time.Hour) && whole(z.Window), "freeze.window", z.Window, "500ms to 1h, in whole milliseconds"},
		{within(z.For, time.Second, 24*time.Hour) && whole(z.For), "freeze.for", z.For, "1s to 24h, in whole milliseconds"},
		{c.Overload.DefaultCriticality.Valid(), "overload.default_criticality", c.Overload.DefaultCriticality, criticalities},
		{c.Overload.Admission.Valid(), "overload.admission", c.Overload.Admission, admissions},
		{c.Overload.validAttempts(), "overload.retry_attempts", c.Overload.RetryAttempts, fmt.Sprintf("1 to %d", MaxRetryAttempts)},
		{c.Overload.validBudget(), "overload.retry_budget", c.Overload.RetryBudget, "0 to 1, a share of the requests"},
		{c.XDS.Missing.Valid(), "xds.missing", c.XDS.Missing, missings},
		{c.XDS.validRetries(), "xds.retries", c.XDS.Retries, fmt.Sprintf("0 to %d", MaxXDSRetries)},
		{c.XDS.validBackoff(), "xds.retry_backoff", c.XDS.RetryBackoff, "1ms to 1s, in whole milliseconds"},
	} {
		if !f.ok {
			return &FieldError{f.field, f.value, f.allowed}
		}
	}
	return nil
}

// whole reports whether d can be sent, in milliseconds, without loss.
func whole(d time.Duration) bool { return d%time.Millisecond == 0 }

// within is false for NaN.
func within[T int | float64 | time.Duration](v, lo, hi T) bool { return v >= lo && v <= hi }
