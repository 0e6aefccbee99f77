package assignment_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

func TestJobDefaults(t *testing.T) {
	c := assignment.JobConfig{Name: "cache"}.WithDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	want := assignment.JobConfig{
		Name: "cache", MinReplicas: 1, MaxReplicas: 10, Mode: assignment.Affinity, LoadMetric: "requests",
		HeartbeatTimeout: 5 * time.Second, LeaseDuration: 5 * time.Second, WarmUp: 30 * time.Second, History: 100, MaxTasks: 10000, TargetUtilization: .6,
		Balance: assignment.BalanceConfig{
			MinSlicesPerTask: 50, MaxSlicesPerTask: 150, MergeBudget: .01, MoveBudget: .09,
			BandStart: 1.03, BandStop: 1.01, Smoothing: .25, Interval: 5 * time.Second, CPUThreshold: .25,
		},
		Damping:  assignment.DampingConfig{HalfLife: time.Minute, Suppress: 3, Reuse: 1.5, Most: 6, Share: .25},
		Freeze:   assignment.FreezeConfig{Share: .5, MinTasks: 4, Window: 10 * time.Second, For: 3 * time.Minute},
		Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOn, DefaultCriticality: assignment.Critical, RetryAttempts: 3, RetryBudget: .1},
		XDS:      assignment.XDSConfig{Missing: assignment.MissingAny, Retries: assignment.MaxXDSRetries, RetryBackoff: 20 * time.Millisecond},
	}
	if c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	if again := c.WithDefaults(); again != c {
		t.Errorf("defaults of a config that has them: %+v", again)
	}
}

// Whatever single field is set to something allowed, the defaults of the others fit.
func TestJobDefaultsFit(t *testing.T) {
	for _, set := range []func(c *assignment.JobConfig){
		func(c *assignment.JobConfig) { c.Mode = assignment.Consistent },
		func(c *assignment.JobConfig) { c.MinReplicas = assignment.MaxReplicas },
		func(c *assignment.JobConfig) { c.MaxReplicas = 1 },
		func(c *assignment.JobConfig) { c.Balance.MinSlicesPerTask = 1000 },
		func(c *assignment.JobConfig) { c.Balance.MinSlicesPerTask = 1 },
		func(c *assignment.JobConfig) { c.Balance.MaxSlicesPerTask = 1 },
		func(c *assignment.JobConfig) { c.Balance.MaxSlicesPerTask = 1000 },
		func(c *assignment.JobConfig) { c.Balance.BandStart = 1 },
		func(c *assignment.JobConfig) { c.Balance.BandStart = 100 },
		func(c *assignment.JobConfig) { c.Balance.BandStop = 100 },
		func(c *assignment.JobConfig) { c.Balance.BandStop = 1 },
		func(c *assignment.JobConfig) { c.Balance.MergeBudget, c.Balance.MoveBudget = -1, -1 },
		func(c *assignment.JobConfig) { c.Balance.CPUThreshold = -1 },
		func(c *assignment.JobConfig) { c.Damping.Suppress = 1000 },
		func(c *assignment.JobConfig) { c.Damping.Suppress = 1.1 },
		func(c *assignment.JobConfig) { c.Damping.Reuse = 999 },
		func(c *assignment.JobConfig) { c.Damping.Reuse = .1 },
		func(c *assignment.JobConfig) { c.Damping.Most = 1.1 },
		func(c *assignment.JobConfig) { c.Damping.Most = 1000 },
		func(c *assignment.JobConfig) { c.Damping.Share = -1 },
		func(c *assignment.JobConfig) { c.WarmUp = assignment.NoWarmUp },
		func(c *assignment.JobConfig) { c.HeartbeatTimeout = 10 * time.Minute },
		func(c *assignment.JobConfig) { c.HeartbeatTimeout = 500 * time.Millisecond },
		func(c *assignment.JobConfig) { c.Freeze.Share = 1 },
	} {
		c := assignment.JobConfig{Name: "cache"}
		set(&c)
		if err := c.WithDefaults().Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestJobValidate(t *testing.T) {
	for _, tc := range []struct {
		set   func(c *assignment.JobConfig)
		field string
		want  string
	}{
		{func(c *assignment.JobConfig) { c.Name = "" }, "job name", `"" is not allowed: want an RFC 1123 label`},
		{func(c *assignment.JobConfig) { c.Name = "a/b" }, "job name", `"a/b"`},
		{func(c *assignment.JobConfig) { c.MinReplicas = 3; c.MaxReplicas = 2 }, "min_replicas", "3 is not allowed: want at most max_replicas, which is 2"},
		{func(c *assignment.JobConfig) { c.MinReplicas = -1 }, "min_replicas", "-1"},
		{func(c *assignment.JobConfig) { c.MinReplicas = 1025 }, "min_replicas", "1025"},
		{func(c *assignment.JobConfig) { c.MaxReplicas = 1025 }, "max_replicas", "1025"},
		{func(c *assignment.JobConfig) { c.Mode = assignment.Consistent; c.MaxReplicas = 2 }, "max_replicas", "2 is not allowed: want 1 in consistent mode"},
		{func(c *assignment.JobConfig) { c.Mode = assignment.Consistent; c.MinReplicas = 2 }, "min_replicas", "2"},
		{func(c *assignment.JobConfig) { c.Mode = 9 }, "mode", "Mode(9)"},
		{func(c *assignment.JobConfig) { c.LoadMetric = "qps" }, "load_metric", `"qps" is not allowed: want requests, cpu or custom`},
		{func(c *assignment.JobConfig) { c.Zone = "eu/1" }, "zone", `"eu/1"`},
		{func(c *assignment.JobConfig) { c.Store = strings.Repeat("s", 64) }, "store", "sss"},
		{func(c *assignment.JobConfig) { c.HeartbeatTimeout = time.Millisecond }, "heartbeat_timeout", "1ms is not allowed: want 500ms to 10m"},
		{func(c *assignment.JobConfig) { c.HeartbeatTimeout = time.Second + 1 }, "heartbeat_timeout", "1.000000001s"},
		{func(c *assignment.JobConfig) { c.LeaseDuration = time.Hour }, "lease_duration", "1h0m0s"},
		{func(c *assignment.JobConfig) { c.Balance.MinSlicesPerTask = 1001 }, "balance.min_slices_per_task", "1001"},
		{func(c *assignment.JobConfig) { c.Balance.MaxSlicesPerTask = -7 }, "balance.max_slices_per_task", "-7"},
		{func(c *assignment.JobConfig) { c.Balance.MinSlicesPerTask = 60; c.Balance.MaxSlicesPerTask = 20 }, "balance.min_slices_per_task", "60 is not allowed: want at most max_slices_per_task, which is 20"},
		{func(c *assignment.JobConfig) { c.XDS.Missing = 3 }, "xds.missing", "want any or refuse"},
		{func(c *assignment.JobConfig) { c.XDS.Retries = 5 }, "xds.retries", "5"},
		{func(c *assignment.JobConfig) { c.XDS.Retries = -2 }, "xds.retries", "-2"},
		{func(c *assignment.JobConfig) { c.XDS.RetryBackoff = 1500 * time.Microsecond }, "xds.retry_backoff", "1.5ms"},
		{func(c *assignment.JobConfig) { c.Balance.MergeBudget = 1.01 }, "balance.merge_budget", "1.01"},
		{func(c *assignment.JobConfig) { c.Balance.MoveBudget = -.5 }, "balance.move_budget", "-0.5"},
		{func(c *assignment.JobConfig) { c.Balance.MoveBudget = math.NaN() }, "balance.move_budget", "NaN"},
		{func(c *assignment.JobConfig) { c.Balance.BandStart = .9 }, "balance.band_start", "0.9"},
		{func(c *assignment.JobConfig) { c.Balance.BandStart = math.Inf(1) }, "balance.band_start", "+Inf"},
		{func(c *assignment.JobConfig) { c.Balance.BandStop = math.NaN() }, "balance.band_stop", "NaN"},
		{func(c *assignment.JobConfig) { c.Balance.BandStart = 1.1; c.Balance.BandStop = 1.2 }, "balance.band_stop", "1.2 is not allowed: want at most band_start, which is 1.1"},
		{func(c *assignment.JobConfig) { c.Balance.Smoothing = 1.5 }, "balance.smoothing", "1.5"},
		{func(c *assignment.JobConfig) { c.Balance.Smoothing = -1 }, "balance.smoothing", "-1"},
		{func(c *assignment.JobConfig) { c.Balance.Interval = time.Millisecond }, "balance.interval", "1ms"},
		{func(c *assignment.JobConfig) { c.TargetUtilization = .01 }, "target_utilization", "0.01"},
		{func(c *assignment.JobConfig) { c.Balance.CPUThreshold = 2 }, "balance.cpu_threshold", "2"},
		{func(c *assignment.JobConfig) { c.WarmUp = 2 * time.Hour }, "warm_up", "2h0m0s is not allowed: want 0 to 1h"},
		{func(c *assignment.JobConfig) { c.WarmUp = -time.Second }, "warm_up", "-1s"},
		{func(c *assignment.JobConfig) { c.WarmUp = time.Microsecond }, "warm_up", "in whole milliseconds"},
		{func(c *assignment.JobConfig) { c.History = 1001 }, "history", "1001 is not allowed: want 1 to 1000"},
		{func(c *assignment.JobConfig) { c.Damping.HalfLife = time.Millisecond }, "damping.half_life", "1ms is not allowed: want 1s to 24h"},
		{func(c *assignment.JobConfig) { c.Damping.Suppress = 1 }, "damping.suppress", "1 is not allowed: want above 1"},
		{func(c *assignment.JobConfig) { c.Damping.Suppress = math.NaN() }, "damping.suppress", "NaN"},
		{func(c *assignment.JobConfig) { c.Damping.Suppress, c.Damping.Reuse = 2, 2 }, "damping.reuse", "2 is not allowed: want above 0, below suppress, which is 2"},
		{func(c *assignment.JobConfig) { c.Damping.Suppress, c.Damping.Most = 4, 3 }, "damping.most", "3 is not allowed: want suppress, which is 4, to 1000"},
		{func(c *assignment.JobConfig) { c.Damping.Share = 1.5 }, "damping.share", "1.5"},
		{func(c *assignment.JobConfig) { c.Freeze.Share = -1 }, "freeze.share", "-1 is not allowed: want above 0, to 1, a share of the tasks; 1 never freezes"},
		{func(c *assignment.JobConfig) { c.Freeze.Share = math.NaN() }, "freeze.share", "NaN"},
		{func(c *assignment.JobConfig) { c.Freeze.MinTasks = -1 }, "freeze.min_tasks", "-1 is not allowed: want 1 to"},
		{func(c *assignment.JobConfig) { c.Freeze.Window = 2 * time.Hour }, "freeze.window", "2h0m0s is not allowed: want 500ms to 1h"},
		{func(c *assignment.JobConfig) { c.Freeze.For = time.Millisecond }, "freeze.for", "1ms is not allowed: want 1s to 24h"},
	} {
		c := assignment.JobConfig{Name: "cache"}
		tc.set(&c)
		err := c.WithDefaults().Validate()
		var field *assignment.FieldError
		if !errors.As(err, &field) || field.Field != tc.field || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %s: %s", err, tc.field, tc.want)
		}
	}
}

func TestValidateJobName(t *testing.T) {
	for _, good := range []string{"a", "0", "cache", "a-b", "a--b", "1a", strings.Repeat("a", 63)} {
		if err := assignment.ValidateJobName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "-", "-a", "a-", "A", "a_b", "a.b", "a/b", "a b", "a\n", "ä", "a\x00", strings.Repeat("a", 64)} {
		checkFieldError(t, bad, assignment.ValidateJobName(bad), "job name")
	}
}

func TestTaskValidate(t *testing.T) {
	good := newTasks(1)[0]
	for _, tc := range []struct {
		set  func(t *assignment.Task)
		want string
	}{
		{func(t *assignment.Task) {}, ""},
		{func(t *assignment.Task) { t.Zone = "" }, ""},
		{func(t *assignment.Task) { t.Name = strings.Repeat("n", 253) }, ""},
		{func(t *assignment.Task) { t.Address = "[::1]:80" }, ""},
		{func(t *assignment.Task) { t.Weight = 1e-6 }, ""},
		{func(t *assignment.Task) { t.Name = "" }, "task name"},
		{func(t *assignment.Task) { t.Name = strings.Repeat("n", 254) }, "task name"},
		{func(t *assignment.Task) { t.Name = "a b" }, "task name"},
		{func(t *assignment.Task) { t.Name = "a/b" }, "task name"},
		{func(t *assignment.Task) { t.Name = "ä" }, "task name"},
		{func(t *assignment.Task) { t.Name = "a\x7f" }, "task name"},
		{func(t *assignment.Task) { t.Incarnation = 0 }, "task incarnation: 0"},
		{func(t *assignment.Task) { t.Address = "" }, "task address"},
		{func(t *assignment.Task) { t.Address = strings.Repeat("n", 513) }, "task address"},
		{func(t *assignment.Task) { t.Zone = "z z" }, "task zone"},
		{func(t *assignment.Task) { t.Zone = strings.Repeat("z", 64) }, "task zone"},
		{func(t *assignment.Task) { t.Weight = 0 }, "task weight: 0"},
		{func(t *assignment.Task) { t.Weight = -1 }, "task weight: -1"},
		{func(t *assignment.Task) { t.Weight = math.NaN() }, "task weight: NaN"},
		{func(t *assignment.Task) { t.Weight = math.Inf(1) }, "task weight: +Inf"},
		{func(t *assignment.Task) { t.Index = assignment.MaxTasks }, "task index: 131072"},
		{func(t *assignment.Task) { t.State = 5 }, "task state: TaskState(5)"},
	} {
		task := good
		tc.set(&task)
		if err := task.Validate(); tc.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", task, err)
			}
		} else {
			checkFieldError(t, tc.want, err, tc.want)
		}
	}
	other := good
	other.Address = "elsewhere:1"
	if !good.Same(other) {
		t.Error("a process that moved is not the same")
	}
	if other.Incarnation++; good.Same(other) {
		t.Error("a restarted process is the same")
	}
}

func TestNames(t *testing.T) {
	for s := assignment.TaskUnknown; s <= assignment.TaskDead; s++ {
		if back, err := assignment.ParseTaskState(s.String()); err != nil || back != s {
			t.Errorf("state %d: %s, %v", s, s, err)
		}
	}
	for _, m := range []assignment.Mode{assignment.Affinity, assignment.Consistent} {
		if back, err := assignment.ParseMode(m.String()); err != nil || back != m {
			t.Errorf("mode %d: %s, %v", m, m, err)
		}
	}
	_, err := assignment.ParseTaskState("Running")
	checkFieldError(t, "state", err, `state: "Running" is not allowed: want unknown, starting, running, draining or dead`)
	_, err = assignment.ParseMode("strict")
	checkFieldError(t, "mode", err, `mode: "strict" is not allowed: want affinity or consistent`)
	long := &assignment.FieldError{Field: "f", Value: strings.Repeat("x", 1000), Allowed: "less"}
	if got := long.Error(); len(got) > 130 || !strings.HasSuffix(got, `xxx..." is not allowed: want less`) {
		t.Errorf("long value: %s", got)
	}
}
