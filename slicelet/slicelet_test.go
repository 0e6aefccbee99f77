package slicelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	distributor = "10.0.0.1:1"
	backup      = "10.0.1.1:1"
)

// cluster is a slicelet "me" with a Distributor, on virtual time.
type cluster struct {
	t      *testing.T
	net    *subscribertest.Network
	server *subscribertest.Server
	s      *Slicelet
	last   *assignment.Assignment
	me     *slicerv1.Task // as it said hello
}

func config(n *subscribertest.Network) Config {
	return Config{
		Job: "job", Task: "me", Address: "10.9.9.9:80", Zone: "z",
		Distributors: []string{distributor}, Backups: []string{backup}, DialOptions: n.DialOptions(),
	}
}

// newCluster waits until the slicelet has said hello.
func newCluster(t *testing.T, change func(*Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, net: subscribertest.NewNetwork()}
	c.server = startServer(c.net)
	c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, ReportIntervalMs: 1000})
	cfg := config(c.net)
	if change != nil {
		change(&cfg)
	}
	var err error
	if c.s, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	c.me = c.server.Heard()[0].GetHello().GetTask()
	return c
}

func (c *cluster) stop() {
	c.t.Helper()
	if err := c.s.Close(); err != nil {
		c.t.Error(err)
	}
	c.server.Stop()
}

// assign makes an assignment of slices of equal width whose owners are given by
// name: m is the slicelet, o another task.
func (c *cluster) assign(gen assignment.Generation, state assignment.TaskState, owners string) {
	c.t.Helper()
	self, err := wire.TaskFromProto(c.me)
	if err != nil {
		c.t.Fatal(err)
	}
	self.State = state
	other := subscribertest.Task("other", 1)
	var pos []uint32
	for _, o := range owners {
		pos = append(pos, uint32(strings.IndexRune("mo", o)))
	}
	c.last = subscribertest.Equal(c.t, c.last, assignment.Header{Job: "job", StoreID: 1, Generation: gen}, []assignment.Task{self, other}, pos...)
	c.server.Put(c.last)
	synctest.Wait()
}

// keyIn is a key of the i-th of n slices of equal width.
func keyIn(i, n int) string {
	for j := 0; ; j++ {
		key := fmt.Sprint("key", j)
		if starts := assignment.Equal(n); assignment.KeyOf(key) >= starts[i] && (i+1 == n || assignment.KeyOf(key) < starts[i+1]) {
			return key
		}
	}
}

func (c *cluster) reports() (rs []*slicerv1.Report) {
	for _, m := range c.server.Heard() {
		if r := m.GetReport(); r != nil {
			rs = append(rs, r)
		}
	}
	return rs
}

func TestOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		defer c.stop()
		if c.me.GetName() != "me" || c.me.GetIncarnation() == 0 || c.me.GetWeight() != 1 || c.me.GetZone() != "z" || c.me.GetState() != slicerv1.TaskState_TASK_STATE_RUNNING {
			t.Errorf("hello of %v", c.me)
		}
		k0, k1 := keyIn(0, 4), keyIn(1, 4)
		early := c.s.Handle(k0)
		c.assign(10, assignment.TaskRunning, "mmoo")
		if err := c.s.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !c.s.IsAffinitized(k0) || c.s.IsAffinitized(keyIn(3, 4)) || len(c.s.Slices()) != 2 || c.s.Assignment().Generation() != 10 {
			t.Error("ownership is not as assigned")
		}
		h0, h1 := c.s.Handle(k0), c.s.Handle(k1)
		if early.Owned() || early.AssignedContinuously() || early.FencingToken() != 0 {
			t.Error("a handle of a key that was not owned is valid")
		}
		if !h0.Owned() || !h0.AssignedContinuously() || h0.FencingToken() != 10 || h0.Key() != assignment.KeyOf(k0) {
			t.Errorf("handle %+v", h0)
		}
		c.assign(11, assignment.TaskRunning, "mooo")
		if !h0.AssignedContinuously() || h1.AssignedContinuously() {
			t.Error("handles do not tell the key that went from the one that stayed")
		}
		c.assign(12, assignment.TaskRunning, "mmoo")
		if h1.AssignedContinuously() || c.s.Handle(k1).FencingToken() != 12 || c.s.Handle(k0).FencingToken() != 10 {
			t.Error("a key that was away is taken for one that never was")
		}
		if (Handle{}).AssignedContinuously() || (Handle{}).Owned() {
			t.Error("the zero handle owns something")
		}
		again := c.s.Handle(k0)
		c.s.Close()
		if again.AssignedContinuously() || c.s.IsAffinitized(k0) {
			t.Error("owned after Close")
		}
	})
}

// recorded is a Listener that can be held up.
type recorded struct {
	mu    sync.Mutex
	calls []string
	gate  chan struct{}
}

func (r *recorded) SlicesChanged(_ context.Context, c Change) {
	if r.gate != nil {
		<-r.gate
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf("+%s -%s", quarters(c.Arrived), quarters(c.Departed)))
}

func (r *recorded) take() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

func quarters(rs []Range) string {
	text := ""
	for i, k := range assignment.Equal(4) {
		if slices.ContainsFunc(rs, func(r Range) bool { return r.Contains(k) }) {
			text += fmt.Sprint(i)
		}
	}
	return text
}

func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &recorded{gate: make(chan struct{})}
		c := newCluster(t, nil)
		c.s.Listen(l)
		expect := func(want ...string) {
			t.Helper()
			if got := l.take(); !slices.Equal(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		c.assign(1, assignment.TaskRunning, "mmoo")
		// The listener blocks; assignments go on.
		c.assign(2, assignment.TaskRunning, "moom") // 1 goes, 3 comes
		c.assign(3, assignment.TaskRunning, "oomm") // 0 goes, 2 comes
		c.assign(4, assignment.TaskRunning, "momo") // 0 is back, 3 goes
		if c.s.Assignment().Generation() != 4 || !c.s.IsAffinitized(keyIn(2, 4)) {
			t.Error("the listener holds up distribution")
		}
		l.gate <- struct{}{}
		expect("+01 -")
		l.gate <- struct{}{}
		expect("+02 -01") // 0 was away meanwhile
		close(l.gate)
		c.assign(5, assignment.TaskRunning, "mmoooomm") // split
		expect("+3 -2")
		c.assign(6, assignment.TaskRunning, "mmoooomm")
		expect()
		c.stop()
		expect()
	})
}

func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, func(c *Config) { c.Weight = 2.5 })
		defer c.stop()
		if c.me.Weight != 2.5 || c.server.Heard()[0].GetHello().GetReport().GetSequence() != 1 {
			t.Errorf("hello %v", c.server.Heard()[0])
		}
		c.assign(1, assignment.TaskRunning, "moo")
		time.Sleep(3 * time.Second)
		for range 50 {
			c.s.Handle(keyIn(0, 3))
			c.s.Handle(keyIn(1, 3)).Shed()
		}
		time.Sleep(10 * time.Second)
		rs := c.reports()
		if len(rs) < 11 || len(rs) > 15 {
			t.Errorf("%d reports in 13 s", len(rs))
		}
		var total, misrouted, shed float64
		for i, r := range rs {
			if r.Sequence != uint64(i+2) || r.State != slicerv1.TaskState_TASK_STATE_RUNNING || r.AgeMs > 100 {
				t.Errorf("report %d: %v", i, r)
			}
			l, err := wire.LoadFromProto(r.Load)
			if err != nil {
				t.Fatal(err)
			}
			total += l.Total * l.Window.Seconds()
			misrouted += l.Misrouted * l.Window.Seconds()
			shed += l.Shed * l.Window.Seconds()
		}
		round := func(x float64) int { return int(x + .5) }
		if round(total) != 100 || round(misrouted) != 50 || round(shed) != 50 {
			t.Errorf("reported %v requests, %v misrouted, %v shed", total, misrouted, shed)
		}
		// The job asks for another interval, and another metric.
		c.server.Say(&slicerv1.Status{TakesReports: true, ReportIntervalMs: 5000, LoadMetric: assignment.LoadCustom})
		time.Sleep(5 * time.Second)
		before := len(c.reports())
		c.s.ReportLoad(keyIn(0, 3), 20)
		h := c.s.Handle(keyIn(0, 3))
		h.ReportLoad(7)
		h.ReportLoad(3)
		Handle{}.ReportLoad(1)
		for _, bad := range []float64{-1, 0, inf(), -inf(), nan()} {
			c.s.ReportLoad(keyIn(0, 3), bad)
			h.ReportLoad(bad)
		}
		time.Sleep(10 * time.Second)
		rs = c.reports()[before:]
		total = 0
		for _, r := range rs {
			total += float64(r.Load.TotalRate) * r.Load.WindowSeconds
		}
		if len(rs) > 3 || round(total) != 30 {
			t.Errorf("%d reports in 10 s, custom load %v", len(rs), total)
		}
		// Time that requests take is load where CPU is.
		c.s.Handle(keyIn(0, 3)).Took(time.Second)
		c.server.Say(&slicerv1.Status{TakesReports: true, ReportIntervalMs: 5000, LoadMetric: assignment.LoadCPU})
		time.Sleep(10 * time.Second)

		long, short := c.s.Handle(keyIn(0, 3)), c.s.Handle(keyIn(0, 3))
		long.Took(time.Hour) // counts as 10 s
		long.Took(-time.Hour)
		for range 10 {
			short.Took(250 * time.Millisecond)
		}
		Handle{}.Took(time.Second)
		if got := c.s.meter.take().cells[spent]; amount(got) != 12.5 {
			t.Errorf("counted %v s, want 12.5", amount(got))
		}
	})
}

func inf() float64 { return 1 / zero }
func nan() float64 { return zero / zero }

var zero float64

func TestConsistentModeOwnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_CONSISTENT})
		c.assign(1, assignment.TaskRunning, "mo")
		if err := c.s.Ready(t.Context()); !errors.Is(err, ErrConsistent) || c.s.IsAffinitized(keyIn(0, 2)) {
			t.Errorf("owned without a lease; Ready: %v", err)
		}
		c.stop()
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		c := newCluster(t, func(c *Config) { c.Registerer = r })
		c.assign(1, assignment.TaskRunning, "mooo")
		c.s.Handle(keyIn(0, 4))
		c.s.Handle(keyIn(1, 4)).Shed()
		time.Sleep(2 * time.Second)
		want := `
# HELP slicer_slicelet_keyspace_ratio Share of the keyspace that the task owns.
# TYPE slicer_slicelet_keyspace_ratio gauge
slicer_slicelet_keyspace_ratio{job="job",slicelet="0",task="me"} 0.25
# HELP slicer_slicelet_requests_total Requests up to the last report: for keys owned, for keys not owned, and of both those shed.
# TYPE slicer_slicelet_requests_total counter
slicer_slicelet_requests_total{job="job",kind="misrouted",slicelet="0",task="me"} 1
slicer_slicelet_requests_total{job="job",kind="owned",slicelet="0",task="me"} 1
slicer_slicelet_requests_total{job="job",kind="shed",slicelet="0",task="me"} 1
`
		if err := testutil.GatherAndCompare(r, strings.NewReader(want), "slicer_slicelet_keyspace_ratio", "slicer_slicelet_requests_total"); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		c.stop()
		if left, _ := r.Gather(); len(left) != 0 {
			t.Errorf("%d metrics left after Close", len(left))
		}
	})
}

func TestConfigRefused(t *testing.T) {
	for _, name := range []string{envTask, envPodName, envAddress, envPodIP} {
		t.Setenv(name, "")
	}
	for _, c := range []struct {
		field  string
		change func(*Config)
	}{
		{"job name", func(c *Config) { c.Job = "" }},
		{"task name", func(c *Config) { c.Task = "a b" }},
		{"task address", func(c *Config) { c.Address = "" }},
		{"task address", func(c *Config) { c.Address = "host" }},
		{"task address", func(c *Config) { c.Address = ":8080" }},
		{"task address", func(c *Config) { c.Address = "[::]:8080" }},
		{"task address", func(c *Config) { c.Address = "0.0.0.0:8080" }},
		{"task address", func(c *Config) { c.Address = "10.1.2.3:0" }},
		{"task zone", func(c *Config) { c.Zone = "a/b" }},
		{"task weight", func(c *Config) { c.Weight = -1 }},
		{"distributors", func(c *Config) { c.Distributors, c.Backups = nil, nil }},
	} {
		cfg := config(subscribertest.NewNetwork())
		c.change(&cfg)
		var fe *assignment.FieldError
		if _, err := New(cfg); !errors.As(err, &fe) || fe.Field != c.field {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}

func TestRequestPathDoesNotAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		defer c.stop()
		c.assign(1, assignment.TaskRunning, "mo")
		key := keyIn(0, 2)
		c.s.Handle(key)
		if n := testing.AllocsPerRun(1000, func() {
			h := c.s.Handle(key)
			_ = h.AssignedContinuously() && c.s.IsAffinitized(key)
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// TestWarns: without a Logger what is wrong is heard of all the same, and only that.
func TestWarns(t *testing.T) {
	for _, x := range []struct {
		name   string
		logger *slog.Logger
		want   []string
	}{
		{"without a logger", nil, []string{ErrTaskNameTaken.Error(), ErrAlone.Error()}},
		{"silenced", slog.New(slog.DiscardHandler), nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			lines := subscribertest.DefaultLog(t)
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, func(cfg *Config) { cfg.Logger = x.logger })
				defer c.stop()
				c.server.Refuse(status.Error(codes.AlreadyExists, "as told"))
				time.Sleep(time.Minute)
				c.server.Refuse(nil)
				c.shownAs(1, assignment.TaskUnknown)
				time.Sleep(time.Minute)
				if err := c.s.Drain(t.Context()); !errors.Is(err, ErrAlone) {
					t.Errorf("drain: %v", err)
				}
			})
			got := lines()
			if len(got) != len(x.want) {
				t.Fatalf("%d lines, want %d:\n%s", len(got), len(x.want), strings.Join(got, "\n"))
			}
			for i, line := range got {
				if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "job=job") || !strings.Contains(line, x.want[i]) {
					t.Errorf("line %q, want %q in it", line, x.want[i])
				}
			}
		})
	}
}
