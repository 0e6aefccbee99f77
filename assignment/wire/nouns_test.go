package wire_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestTaskRoundTrip(t *testing.T) {
	for state := assignment.TaskUnknown; state <= assignment.TaskDead; state++ {
		task := assignment.Task{Name: "a", Incarnation: math.MaxUint64, Address: "[::1]:80", Zone: "z", Index: 9, Weight: .1, State: state}
		if got, err := wire.TaskFromProto(wire.TaskToProto(task)); err != nil || got != task {
			t.Errorf("%+v, %v, want %+v", got, err, task)
		}
		if got, err := wire.StateFromProto(wire.StateToProto(state)); err != nil || got != state {
			t.Errorf("%v, %v, want %v", got, err, state)
		}
	}
	for _, bad := range []*slicerv1.Task{nil, {}, {Name: "a", Incarnation: 1, Address: "b", Weight: 1, State: 99}} {
		if _, err := wire.TaskFromProto(bad); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestJobRoundTrip(t *testing.T) {
	full := assignment.JobConfig{
		Name: "cache", MinReplicas: 2, MaxReplicas: 3, Mode: assignment.Affinity, LoadMetric: "cpu", Zone: "eu", Store: "main",
		HeartbeatTimeout: 1500 * time.Millisecond, LeaseDuration: 2 * time.Second,
		Balance: assignment.BalanceConfig{
			MinSlicesPerTask: 10, MaxSlicesPerTask: 20, MergeBudget: -1, MoveBudget: .5, BandStart: 2, BandStop: 1,
			Smoothing: 1, Interval: time.Second, CPUThreshold: -1,
		},
		WarmUp: assignment.NoWarmUp, History: 7, Damping: assignment.DampingConfig{HalfLife: 90 * time.Second, Suppress: 2.5, Reuse: 1, Most: 5, Share: -1},
		Freeze:   assignment.FreezeConfig{Share: .8, MinTasks: 9, Window: 3 * time.Second, For: time.Hour},
		Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOn, DefaultCriticality: assignment.Sheddable, RetryAttempts: 4, RetryBudget: assignment.NoRetries},
		XDS:      assignment.XDSConfig{Missing: assignment.MissingRefuse, Retries: assignment.NoXDSRetries, RetryBackoff: 5 * time.Millisecond},
	}
	var err error
	if full.Limits, err = assignment.LimitsOf(assignment.Limit{Rate: 5}, map[string]assignment.Limit{"mail": {Rate: 40}, "free": {}, "batch": {MaxCriticality: assignment.Sheddable}}); err != nil {
		t.Fatal(err)
	}
	full.MaxTasks, full.TargetUtilization = 7, .75
	if full.Access, err = assignment.AccessOf(map[assignment.Verb][]string{assignment.Own: {"spiffe://corp/{task}", "a.b"}, assignment.Configure: {"**"}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []assignment.JobConfig{full, assignment.JobConfig{Name: "x"}.WithDefaults(), assignment.JobConfig{Name: "y", Mode: assignment.Consistent}.WithDefaults()} {
		got, err := wire.JobFromProto(wire.JobToProto(c))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, got); diff != "" {
			t.Error(diff)
		}
	}
	got, err := wire.JobFromProto(&slicerv1.JobConfig{Name: "x"})
	if want := (assignment.JobConfig{Name: "x"}).WithDefaults(); err != nil || got != want {
		t.Errorf("%+v, %v, want the defaults", got, err)
	}
}

func TestJobRefused(t *testing.T) {
	for _, tc := range []struct {
		m     *slicerv1.JobConfig
		field string
	}{
		{&slicerv1.JobConfig{}, "job name"},
		{&slicerv1.JobConfig{Name: "x", Mode: 7}, "mode"},
		{&slicerv1.JobConfig{Name: "x", Limits: &slicerv1.Limits{Others: &slicerv1.Limit{Rate: math.Inf(1)}}}, "limits.default.rate"},
		{&slicerv1.JobConfig{Name: "x", Limits: &slicerv1.Limits{Customers: []*slicerv1.Limit{{}}}}, "customer in limits"},
		{&slicerv1.JobConfig{Name: "x", Limits: &slicerv1.Limits{Customers: []*slicerv1.Limit{{Customer: "a"}, {Customer: "a", Rate: 1}}}}, "limits.customers"},
		{&slicerv1.JobConfig{Name: "x", Limits: &slicerv1.Limits{Customers: []*slicerv1.Limit{{Customer: "a", MaxCriticality: -1}}}}, "limits.customers.a.max_criticality"},
		{&slicerv1.JobConfig{Name: "x", Mode: -1}, "mode"},
		{&slicerv1.JobConfig{Name: "x", MaxTasks: math.MaxUint32}, "max_tasks"},
		{&slicerv1.JobConfig{Name: "x", Access: &slicerv1.Access{}}, "access"},
		{&slicerv1.JobConfig{Name: "x", Access: &slicerv1.Access{Own: []string{"a b"}}}, "access.own"},
		{&slicerv1.JobConfig{Name: "x", Access: &slicerv1.Access{Read: make([]string, 101)}}, "access.read"},
		{&slicerv1.JobConfig{Name: "x", MinReplicas: math.MaxUint32}, "min_replicas"},
		{&slicerv1.JobConfig{Name: "x", HeartbeatTimeoutMs: math.MaxInt64}, "heartbeat_timeout"},
		{&slicerv1.JobConfig{Name: "x", HeartbeatTimeoutMs: math.MinInt64}, "heartbeat_timeout"},
		{&slicerv1.JobConfig{Name: "x", Balance: &slicerv1.BalanceConfig{MoveBudget: math.NaN()}}, "balance.move_budget"},
		{&slicerv1.JobConfig{Name: "x", Balance: &slicerv1.BalanceConfig{BandStart: math.Inf(1)}}, "balance.band_start"},
		{&slicerv1.JobConfig{Name: "x", Balance: &slicerv1.BalanceConfig{IntervalMs: -1}}, "balance.interval"},
	} {
		_, err := wire.JobFromProto(tc.m)
		var field *assignment.FieldError
		if !errors.Is(err, wire.ErrMalformed) || !errors.As(err, &field) || field.Field != tc.field {
			t.Errorf("%v: %v, want a complaint about %s", tc.m, err, tc.field)
		}
	}
	if _, err := wire.JobFromProto(nil); !errors.Is(err, wire.ErrMalformed) {
		t.Error(err)
	}
}

func sampleLoad() *assignment.Load {
	return &assignment.Load{
		Generation: 5, Window: 1500 * time.Millisecond,
		Ranges: []assignment.Slice{{Start: 0, End: 10}, {Start: 10, End: 11}, {Start: 1 << 62, End: assignment.KeyspaceEnd}},
		Rate:   []float64{1, 2.5, 0}, Parts: 2, PartRate: []float64{.5, .5, 2, .5, 0, 0},
		Hot:       []assignment.HotKey{{Key: 10, Rate: 2, Error: .25}, {Key: assignment.KeyspaceEnd - 1, Rate: 1}},
		Misrouted: .125, Shed: 4, Unserved: 3, Total: 8, CPU: .5, Cores: 1.5, Memory: 1 << 30,
	}
}

func TestLoadRoundTrip(t *testing.T) {
	for _, l := range []*assignment.Load{sampleLoad(), {Parts: 1}, {Parts: 1, Ranges: []assignment.Slice{assignment.Keyspace}, Rate: []float64{wire.MaxRate}}} {
		got, err := wire.LoadFromProto(wire.LoadToProto(l))
		if err != nil {
			t.Fatal(err)
		}
		want := *l
		if want.Ranges == nil {
			want.Ranges = []assignment.Slice{}
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// Odd measurements do not cost the report.
func TestLoadToProtoTames(t *testing.T) {
	l := sampleLoad()
	l.Rate = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}
	l.PartRate = []float64{math.NaN(), -1, 1e300, math.MaxFloat64, 1, math.Copysign(0, -1)}
	l.Hot = []assignment.HotKey{{Key: 1, Rate: 1, Error: math.NaN()}, {Key: 2, Rate: math.Inf(1), Error: -3}}
	l.Misrouted, l.Shed, l.Total, l.CPU = math.NaN(), -1, math.Inf(1), 1e30
	got, err := wire.LoadFromProto(wire.LoadToProto(l))
	if err != nil {
		t.Fatal(err)
	}
	want := sampleLoad()
	want.Rate = []float64{0, wire.MaxRate, 0}
	want.PartRate = []float64{0, 0, wire.MaxRate, wire.MaxRate, 1, 0}
	want.Hot = []assignment.HotKey{{Key: 2, Rate: wire.MaxRate}, {Key: 1, Rate: 1}} // heaviest first
	want.Misrouted, want.Shed, want.Total, want.CPU = 0, 0, wire.MaxRate, wire.MaxRate
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLoadRefused(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, tc := range []struct {
		name   string
		change func(m *slicerv1.LoadReport)
		want   string
	}{
		{"rates", func(m *slicerv1.LoadReport) { m.Rate = m.Rate[1:] }, "2 rates for 3 ranges"},
		{"widths", func(m *slicerv1.LoadReport) { m.RangeWidth = m.RangeWidth[1:] }, "3 range distances for 2 widths"},
		{"no widths", func(m *slicerv1.LoadReport) { m.RangeWidth = nil }, "3 range distances for 0 widths"},
		{"too many", func(m *slicerv1.LoadReport) {
			m.RangeSkip, m.Rate = make([]uint64, wire.MaxReportRanges+1), make([]float32, wire.MaxReportRanges+1)
		}, "131073 rates"},
		{"parts", func(m *slicerv1.LoadReport) { m.Parts = 65 }, "65 parts"},
		{"parts wild", func(m *slicerv1.LoadReport) { m.Parts = math.MaxUint32 }, "4294967295 parts"},
		{"part rates", func(m *slicerv1.LoadReport) { m.PartRate = m.PartRate[1:] }, "5 part rates"},
		{"no part rates", func(m *slicerv1.LoadReport) { m.PartRate = nil }, "0 part rates for 3 ranges of 2 parts"},
		{"empty range", func(m *slicerv1.LoadReport) { m.RangeWidth[0] = 0 }, "range 0"},
		{"range past the end", func(m *slicerv1.LoadReport) { m.RangeWidth[2]++ }, "range 2"},
		{"range wraps", func(m *slicerv1.LoadReport) { m.RangeSkip[1] = math.MaxUint64 }, "range 1"},
		{"range width wraps", func(m *slicerv1.LoadReport) { m.RangeWidth[1] = math.MaxUint64 }, "range 1"},
		{"NaN", func(m *slicerv1.LoadReport) { m.Rate[1] = nan }, "rate NaN"},
		{"infinite", func(m *slicerv1.LoadReport) { m.Rate[1] = inf }, "rate +Inf"},
		{"negative", func(m *slicerv1.LoadReport) { m.PartRate[1] = -1 }, "rate -1"},
		{"absurd", func(m *slicerv1.LoadReport) { m.TotalRate = 1e30 }, "rate 1e+30"},
		{"misrouted", func(m *slicerv1.LoadReport) { m.MisroutedRate = nan }, "rate NaN"},
		{"shed", func(m *slicerv1.LoadReport) { m.ShedRate = -1 }, "rate -1"},
		{"unserved", func(m *slicerv1.LoadReport) { m.UnservedRate = -1 }, "rate -1"},
		{"cpu", func(m *slicerv1.LoadReport) { m.CpuUtilization = nan }, "rate NaN"},
		{"hot rate", func(m *slicerv1.LoadReport) { m.HotRate[0] = inf }, "rate +Inf"},
		{"hot error", func(m *slicerv1.LoadReport) { m.HotError[1] = nan }, "rate NaN"},
		{"hot rates", func(m *slicerv1.LoadReport) { m.HotRate = nil }, "2 hot keys with 0 rates"},
		{"hot key", func(m *slicerv1.LoadReport) { m.HotKey[0] = 1 << 63 }, "hot key 0 is past"},
		{"hot keys", func(m *slicerv1.LoadReport) {
			m.HotKey, m.HotRate, m.HotError = make([]uint64, 1025), make([]float32, 1025), make([]float32, 1025)
		}, "1025 hot keys"},
		{"generation", func(m *slicerv1.LoadReport) { m.Generation = -1 }, "generation -1"},
		{"window", func(m *slicerv1.LoadReport) { m.WindowSeconds = math.NaN() }, "window of NaN"},
		{"window long", func(m *slicerv1.LoadReport) { m.WindowSeconds = math.Inf(1) }, "window of +Inf"},
		{"window negative", func(m *slicerv1.LoadReport) { m.WindowSeconds = -1 }, "window of -1"},
	} {
		m := wire.LoadToProto(sampleLoad())
		tc.change(m)
		if l, err := wire.LoadFromProto(m); l != nil || !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
		if err := wire.CheckLoad(m); !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: checked: %v, want %s", tc.name, err, tc.want)
		}
	}
	if _, err := wire.LoadFromProto(nil); !errors.Is(err, wire.ErrMalformed) {
		t.Error(err)
	}
	// Parts of an unparted report say nothing.
	m := wire.LoadToProto(&assignment.Load{Parts: 1, Ranges: []assignment.Slice{assignment.Keyspace}, Rate: []float64{3}, PartRate: []float64{3}})
	if l, err := wire.LoadFromProto(proto.CloneOf(m)); err != nil || l.PartRate != nil || l.Parts != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}
