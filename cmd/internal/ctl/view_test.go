package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/jobfile"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const quarter = assignment.KeyspaceEnd / 4

func sampleTasks() []assignment.Task {
	return []assignment.Task{
		{Name: "web-0", Incarnation: 1, Address: "10.0.0.1:80", Zone: "eu-1", Index: 0, Weight: 1, State: assignment.TaskRunning},
		{Name: "web-1", Incarnation: 2, Address: "10.0.0.2:80", Zone: "eu-1", Index: 1, Weight: 2, State: assignment.TaskRunning},
		{Name: "web-2", Incarnation: 3, Address: "10.0.0.3:80", Index: 3, Weight: 1, State: assignment.TaskDraining},
	}
}

func sample(t *testing.T, prev *assignment.Assignment, gen assignment.Generation, owners ...uint32) *assignment.Assignment {
	t.Helper()
	var p assignment.Placement
	for i, o := range owners {
		p.Add(assignment.SliceKey(i)*quarter, o)
	}
	a, err := assignment.Successor(prev, assignment.Header{Job: "web", StoreID: 0xabc, Generation: gen}, sampleTasks(), p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func sampleInfo() *slicerv1.InspectJobResponse {
	t := func(name string, inc uint64, index uint32, weight float64, s slicerv1.TaskState) *slicerv1.Task {
		return &slicerv1.Task{Name: name, Incarnation: inc, Address: fmt.Sprintf("10.0.0.%d:80", inc), Zone: "eu-1", Index: index, Weight: weight, State: s}
	}
	running := slicerv1.TaskState_TASK_STATE_RUNNING
	return &slicerv1.InspectJobResponse{
		Job: &slicerv1.Job{Version: 3, Config: &slicerv1.JobConfig{Name: "web", MinReplicas: 1, MaxReplicas: 10,
			Mode: slicerv1.Mode_MODE_AFFINITY, LoadMetric: "requests"}},
		Generation: 1763715600000, AssignerId: "a0", Preferred: true,
		Tasks: []*slicerv1.TaskStatus{
			{Task: t("web-0", 1, 0, 1, running), Load: 150, LastReportAgeMs: 400, Connected: true},
			{Task: t("web-1", 2, 1, 2, running), Load: 150, LastReportAgeMs: 900, Connected: true, MisroutedRate: 1.5, CpuUtilization: .25},
			{Task: t("web-2", 3, 3, 1, slicerv1.TaskState_TASK_STATE_DRAINING), LastReportAgeMs: 61000},
		},
		Imbalance: 1.5, Floor: 1, ConvergedGeneration: 1763715599000, Stragglers: []string{"clerk c1"},
		Distributors: 1, Clerks: 2, Slicelets: 3,
		LastRound: &slicerv1.Round{Generation: 1763715600000, UnixMs: 1763715600000, KeyChurn: .25, LoadChurn: .125, Decisions: []*slicerv1.Decision{
			{Kind: "move", Reason: "overload", Start: 0, End: 1 << 61, From: "web-0", To: "web-1"},
			{Kind: "split", Reason: "hot", Start: 0, End: 1 << 61},
			{Kind: "move", Reason: "overload", Start: 1 << 61, End: 1 << 62, From: "web-0", To: "web-1"},
		}},
	}
}

func TestInspectView(t *testing.T) {
	a := sample(t, nil, 1763715600000, 0, 1, 1, 0)
	v, err := newInspectView("web", sampleInfo().Job, a, sampleInfo())
	if err != nil {
		t.Fatal(err)
	}
	if err := v.only("", true); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	v.print(&b, time.UnixMilli(1763715600000).Add(90*time.Second))
	want := `job web: affinity, 1 to 10 replicas, load in requests, config version 3
generation 1763715600000, made 1m30s ago, 4 slices
imbalance 1.50, floor 1.00
assigner a0 (preferred)
not converged: every connected subscriber holds generation 1763715599000 or newer (1 distributor, 2 clerks, 3 slicelets); behind: clerk c1
last round 1m30s ago: 25.0% of keys and 12.5% of load to other tasks: 2 move (overload), 1 split (hot)

TASK   STATE     SLICES  SHARE  LOAD  OF MEAN  MISROUTED    CPU          REPORT  ADDRESS      ZONE
web-0  running        2  50.0%   150     1.50          0     0%       400ms ago  10.0.0.1:80  eu-1
web-1  running        2  50.0%   150     0.75        1.5  25.0%       900ms ago  10.0.0.2:80  eu-1
web-2  draining       0     0%     0     0.00          0     0%  1m1s ago, gone  10.0.0.3:80  eu-1

START             END               SHARE  TASKS
0000000000000000  2000000000000000  25.0%  web-0
2000000000000000  4000000000000000  25.0%  web-1
4000000000000000  6000000000000000  25.0%  web-1
6000000000000000  8000000000000000  25.0%  web-0
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if v.Tasks[1].Load.OfMean != .75 {
		t.Errorf("a task of weight 2 has %v of the mean", v.Tasks[1].Load.OfMean)
	}
	if _, err := json.Marshal(v); err != nil {
		t.Error(err)
	}
}

// A task that has no room for all that is asked of it says so.
func TestInspectViewOfOverload(t *testing.T) {
	info := sampleInfo()
	info.Tasks[0].ShedRate, info.Tasks[1].ShedRate = 1234.5, .001
	v, err := newInspectView("web", info.Job, sample(t, nil, 1763715600000, 1, 1, 1, 1), info)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	v.print(&b, time.UnixMilli(1763715601000))
	if n := bytes.Count(b.Bytes(), []byte("refuses")); n != 1 || !bytes.Contains(b.Bytes(), []byte("\nweb-0 refuses 1234 requests a second for want of room\n")) {
		t.Errorf("%s", &b)
	}
}

// A wrong clock is told of although decisions are taken.
func TestInspectViewOfAnAlarm(t *testing.T) {
	info := sampleInfo()
	info.Alarm = "the clock has jumped"
	v, err := newInspectView("web", info.Job, sample(t, nil, 1763715600000, 1, 1, 1, 1), info)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	v.print(&b, time.UnixMilli(1763715601000))
	if !bytes.Contains(b.Bytes(), []byte("assigner a0 (preferred)\nalarm: the clock has jumped\n")) {
		t.Errorf("%s", &b)
	}
}

// Tasks are in order of name, those that are gone come last and have no row, one that
// is dead has no load any more, and an excluded one does not lower the mean.
func TestInspectViewOfTheAbsent(t *testing.T) {
	info := sampleInfo()
	info.Tasks[0], info.Tasks[2] = info.Tasks[2], info.Tasks[0]
	for i, name := range []string{"web-00", "web-01"} {
		dead := &slicerv1.Task{Name: name, Incarnation: 9, Address: "10.0.0.9:80", Index: 4, Weight: 1, State: slicerv1.TaskState_TASK_STATE_DEAD}
		info.Tasks = append(info.Tasks, &slicerv1.TaskStatus{Task: dead, Load: 70, CpuUtilization: .5, LastReportAgeMs: int64(10000*i - 1)})
	}
	info.Tasks[0].Task.State, info.Tasks[0].LastReportAgeMs = slicerv1.TaskState_TASK_STATE_DEAD, 9000
	info.Tasks[2].Load = 0
	info.Tasks[2].Task.Incarnation, info.Tasks[2].Task.Address = 8, "10.0.0.8:80" // it has restarted
	info.Tasks[2].Warming = .4
	info.Overrides = &slicerv1.Overrides{Excluded: []*slicerv1.Exclusion{{Task: "web-0"}}}
	v, err := newInspectView("web", info.Job, sample(t, nil, 1763715600000, 1, 2, 0, 0), info)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	v.printTasks(&b)
	v.printStandings(&b)
	want := `TASK   STATE    SLICES  SHARE  LOAD  OF MEAN  MISROUTED    CPU        REPORT  ADDRESS      ZONE
web-0  running       0     0%     0     0.00          0     0%     400ms ago  10.0.0.8:80  eu-1
web-1  running       1  25.0%   150     1.00        1.5  25.0%     900ms ago  10.0.0.2:80  eu-1
web-2  dead          1  25.0%     -        -          -      -  9s ago, gone  10.0.0.3:80  eu-1
web-0 is warming, 40 %
2 slices (50.0% of keys) are still with web-0's former incarnation at 10.0.0.1:80, which is gone
1 slice (25.0% of keys) is still with web-2 at 10.0.0.3:80, which is dead
gone: web-00, web-01 10s ago
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	// What the assigner says is older than the assignment: it may own all of it.
	info.Generation--
	if v, err = newInspectView("web", info.Job, sample(t, nil, 1763715600000, 1, 2, 0, 0), info); err != nil {
		t.Fatal(err)
	}
	if k := v.Tasks[0]; k.Name != "web-0" || k.Slices != 2 || k.Former != nil {
		t.Errorf("%+v", k)
	}
}

func TestInspectViewWithoutAssigner(t *testing.T) {
	v, err := newInspectView("web", nil, sample(t, nil, 1763715600000, 0, 1, 1, 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.only("web-1", false); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	v.print(&b, time.UnixMilli(1763715600000).Add(3*24*time.Hour))
	want := `job web
generation 1763715600000, made 3d ago, 4 slices
no assigner answers here: load and convergence are not known

TASK   STATE    SLICES  SHARE  ADDRESS      ZONE
web-1  running       2  50.0%  10.0.0.2:80  eu-1
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if err := v.only("web-9", false); err == nil || exitCode(err) != exitNotFound {
		t.Errorf("an unknown task: %v", err)
	}
}

func TestChangeLine(t *testing.T) {
	old := sample(t, nil, 1763715600000, 0, 1, 1, 0)
	next := sample(t, old, 1763715601000, 0, 1, 0, 0)
	v := newChange(old, next)
	v.Why = newRound(sampleInfo().LastRound)
	at := time.Date(2026, 1, 2, 15, 4, 5, 6e6, time.UTC)
	want := "15:04:05.006 generation 1763715601000: 4 slices on 3 tasks; 25.0% of keys moved: web-1 -> web-0 25.0%; why: 2 move (overload), 1 split (hot)"
	if got := v.line(at); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	first := newChange(nil, old)
	if got, want := first.line(at), "15:04:05.006 generation 1763715600000: 4 slices on 3 tasks; tasks: +web-0, +web-1, +web-2"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestExplain(t *testing.T) {
	c := &client{server: "slicer:4720", named: "--server", timeout: time.Second}
	dial := `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`
	for _, k := range []struct {
		err  error
		want string
		code int
	}{
		{status.Error(codes.Unavailable, dial), "cannot reach slicer:4720: dial tcp 127.0.0.1:1: connect: connection refused (--server says where a Distributor is)", 4},
		{status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`), "cannot reach slicer:4720: error reading server preface: EOF; does it want TLS (--tls-ca)? (--server says where a Distributor is)", 4},
		{status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: tls: first record does not look like a TLS handshake"`), "cannot reach slicer:4720: it does not speak TLS: leave out --tls-ca and --tls-cert, or name another server (--server says where a Distributor is)", 4},
		{status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"`), "cannot reach slicer:4720: it speaks HTTP/1.1, as the port of --http does (--server says where a Distributor is)", 4},
		{status.Error(codes.Unavailable, "name resolver error: produced zero addresses"), "cannot find slicer:4720: there is no address of that name", 4},
		{status.Error(codes.Unavailable, "no assigner is connected"), "slicer:4720 cannot answer now: no assigner is connected", 4},
		{status.Error(codes.Unavailable, "write tcp a->b: broken pipe"), "the connection to slicer:4720 broke: write tcp a->b: broken pipe", 4},
		{status.Error(codes.DeadlineExceeded, "context deadline exceeded"), "no answer from slicer:4720 within 1s", 4},
		{context.DeadlineExceeded, "no answer from slicer:4720 within 1s", 4},
		{status.Error(codes.NotFound, `job "x": not found`), `job "x": not found`, 3},
		{status.Error(codes.InvalidArgument, "min_replicas: 3 is not allowed"), "min_replicas: 3 is not allowed", 1},
		{status.Error(codes.Unimplemented, "GetHistory: ask a distributor"), "slicer:4720: GetHistory: ask a distributor", 1},
		{status.Error(codes.Unimplemented, "unknown service"), "slicer:4720: it does not know this call: is it a Distributor?", 1},
		{status.Error(codes.Internal, "boom"), "slicer:4720 answers Internal: boom", 1},
		{errors.New("mine"), "mine", 1},
	} {
		if got := c.explain(k.err); got.Error() != k.want || exitCode(got) != k.code {
			t.Errorf("%v:\n got %s (exit %d)\nwant %s (exit %d)", k.err, got, exitCode(got), k.want, k.code)
		}
	}
	for _, msg := range []string{`connection error: desc = "error reading server preface: EOF (no certificate was presented)"`, "error reading from server: EOF (no certificate was presented)"} {
		if got := c.explain(status.Error(codes.Unavailable, msg)).Error(); !strings.Contains(got, "--tls-cert") || strings.Contains(got, "does it want TLS") {
			t.Errorf("without a certificate: %s", got)
		}
	}
	if c.explain(nil) != nil {
		t.Error("nothing to explain")
	}
}

func TestPercentAndAge(t *testing.T) {
	for x, want := range map[float64]string{0: "0%", .00001: "<.01%", .0123: "1.23%", .123: "12.3%", 1: "100.0%"} {
		if got := percent(x); got != want {
			t.Errorf("percent(%v) = %s, want %s", x, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-1: "0s", 1234 * time.Millisecond: "1.2s", 75 * time.Second: "1m15s", 3*time.Hour + 20*time.Minute: "3h20m", 50 * time.Hour: "2d"} {
		if got := age(d); got != want {
			t.Errorf("age(%s) = %s, want %s", d, got, want)
		}
	}
}

// TestJobViewIsAJobFile: what "job get --json" prints is a job's file but for the
// version, also where the config says none.
func TestJobViewIsAJobFile(t *testing.T) {
	none := `{name: web, warm_up: 0s, balance: {merge_budget: 0, move_budget: 0, cpu_threshold: 0}, damping: {share: 0}}`
	for _, file := range []string{"name: web", none} {
		want, err := jobfile.Parse("want", []byte(file))
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(newJobView(want[0], 7))
		if err != nil {
			t.Fatal(err)
		}
		got, err := jobfile.Parse("got", bytes.Replace(data, []byte(`"version":7,`), nil, 1))
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s is %s: %v\n%s", file, data, err, cmp.Diff(want, got))
		}
	}
}
