package ctl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/cmd/internal/health"
	"github.com/slicer-project/slicer/cmd/internal/screen"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

var now = time.UnixMilli(1763715600000).Add(90 * time.Second)

// TestJobHealth: of several things that are wrong the first in the list is the health, and all
// are told.
func TestJobHealth(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(m *slicerv1.InspectJobResponse)
		down   bool
		want   health.State
		told   string
	}{
		{"as it should be", func(*slicerv1.InspectJobResponse) {}, false, health.OK, ""},
		{"store", func(m *slicerv1.InspectJobResponse) { m.Holding, m.Preferred = "store failing for 3s: x", false }, true, health.StoreDown, "store default does not answer"},
		{"not preferred", func(m *slicerv1.InspectJobResponse) { m.Preferred, m.Holding = false, "assigner b is preferred" }, false, health.Undecided, "assigner b is preferred"},
		{"takes over", func(m *slicerv1.InspectJobResponse) { m.Holding = "just taken over" }, false, health.Undecided, "just taken over"},
		{"no tasks yet", func(m *slicerv1.InspectJobResponse) {
			m.Tasks, m.Generation, m.Holding = nil, 0, "no task is running"
		}, false, health.Empty, ""},
		{"all dead", func(m *slicerv1.InspectJobResponse) {
			for _, k := range m.Tasks {
				k.Task.State = slicerv1.TaskState_TASK_STATE_DEAD
			}
		}, false, health.Down, "no task serves: 0 start, 0 drain, 0 are excluded, 3 are dead"},
		{"frozen by itself", func(m *slicerv1.InspectJobResponse) { m.VanishedMs, m.Holding = 5, "frozen for 5ms" }, false, health.Frozen, "frozen for 5ms"},
		{"uneven", func(m *slicerv1.InspectJobResponse) { m.Imbalance, m.Floor = 1.6, 1 }, false, health.Hot, "web-0 carries 1.50 times the mean, and could carry 1.00"},
		{"uneven as it has to be", func(m *slicerv1.InspectJobResponse) { m.Imbalance, m.Floor = 1.6, 1.3 }, false, health.OK, ""},
		{"uneven, by three requests a minute", func(m *slicerv1.InspectJobResponse) {
			m.Imbalance, m.Floor = 1.6, 1
			for _, k := range m.Tasks {
				k.Load /= 6000
			}
		}, false, health.OK, ""},
		{"refuses", func(m *slicerv1.InspectJobResponse) { m.Tasks[1].ShedRate = 3 }, false, health.Refusing, "web-1 refuses 3 requests a second for want of room"},
		{"slow", func(m *slicerv1.InspectJobResponse) { m.Progress = &slicerv1.Progress{SlowTotal: 1} }, false, health.Slow, "1 subscriber has not acknowledged"},
		{"frozen and slow", func(m *slicerv1.InspectJobResponse) {
			m.Overrides = &slicerv1.Overrides{Freeze: &slicerv1.Freeze{}}
			m.Holding, m.Progress = "frozen by ada", &slicerv1.Progress{SlowTotal: 2}
		}, false, health.Frozen, "2 subscribers have not acknowledged"},
	} {
		m := sampleInfo()
		c.change(m)
		j, err := newJobStatus(m.Job, m, "", c.down, now)
		if err != nil || j.Health != c.want || !strings.Contains(strings.Join(j.Problems, "\n"), c.told) || (c.told == "") != (len(j.Problems) == 0) {
			t.Errorf("%s: %s %q %v, want %s %q", c.name, j.Health, j.Problems, err, c.want, c.told)
		}
		if j.well() != (c.told == "") {
			t.Errorf("%s: well %v", c.name, j.well())
		}
	}
	j, err := newJobStatus(sampleInfo().Job, nil, "no answer", false, now)
	if err != nil || j.Health != health.Unknown || j.Problems[0] != "no answer" {
		t.Errorf("no answer: %+v, %v", j, err)
	}
}

// TestDeadTasksHaveNoLoad: what a task carried that has died is carried by others now, and not
// counted with theirs.
func TestDeadTasksHaveNoLoad(t *testing.T) {
	m := sampleInfo()
	want := m.Tasks[1].Load + m.Tasks[2].Load
	m.Tasks[0].Task.State = slicerv1.TaskState_TASK_STATE_DEAD
	if m.Tasks[0].Load == 0 || want == 0 {
		t.Fatalf("the sample has no load: %v", m.Tasks)
	}
	if j, err := newJobStatus(m.Job, m, "", false, now); err != nil || j.Load != want {
		t.Errorf("load %g, %v, want %g", j.Load, err, want)
	}
}

func TestStatusPrints(t *testing.T) {
	m := sampleInfo()
	m.WantedTasks, m.Imbalance, m.Floor = 5, 1.6, 1
	for _, k := range m.Tasks {
		k.CpuCores, k.MemoryBytes = .75, 1<<30
	}
	web, err := newJobStatus(m.Job, m, "", false, now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := newJobStatus(&slicerv1.Job{Config: &slicerv1.JobConfig{Name: "billing", Store: "eu"}}, nil, "no answer from here", true, now)
	if err != nil {
		t.Fatal(err)
	}
	plane := &assignersView{Assigner: "a0", Assigners: []assignerView{{ID: "a0", Stores: []string{"main", "eu"}}, {ID: "a1", Stores: []string{"main"}}}, Distributors: []distributorView{{ID: "d0"}},
		Jobs: []jobAssigners{{Job: "web", Chosen: "a0", Disputed: true}}}
	v := newStatus(plane, []jobStatus{other, web}, []string{"eu"})
	var b bytes.Buffer
	v.print(&b, time.UnixMilli(1763715600000).Add(90*time.Second))
	want := `2 assigners: a0 a1; 1 distributor: d0; store eu down; store main up
distributors differ in which assigner they prefer for job web, or prefer another than a0
store eu does not answer

JOB      HEALTH      TASKS  WANTED  CORES  LOAD  IMBALANCE  FLOOR  REPLICAS     GENERATION    AGE  CONVERGED  OVERRIDES
billing  store down      0       -      -     0          -      -      1-10              -      -  -          -
web      hot           2/3       5   2.25   300       1.60   1.00      1-10  1763715600000  1m30s  no         -

billing: store eu does not answer
web: web-0 carries 1.50 times the mean, and could carry 1.00
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
	if v.Well || v.summary() != "not well: billing web; distributors differ in which assigner they prefer for job web, or prefer another than a0; store eu does not answer" {
		t.Errorf("well %v, %s", v.Well, v.summary())
	}
}

// TestTopScreen: what does not fit is cut off at the tasks, and the next view is drawn over
// the one before.
func TestTopScreen(t *testing.T) {
	a := sample(t, nil, 1763715600000, 0, 1, 1, 0)
	v, err := newTop(time.UnixMilli(1763715600000), sampleInfo(), a)
	if err != nil {
		t.Fatal(err)
	}
	if v.Tasks[0].Name != "web-0" || v.Tasks[0].OfMean != 1.5 || v.Tasks[0].Slices != 2 || v.Tasks[0].Share != .5 || v.Tasks[1].Capacity != 2 {
		t.Errorf("tasks: %+v", v.Tasks)
	}
	var b bytes.Buffer
	height := 24
	s := &topScreen{on: screen.Screen{W: &b, Size: func() (int, int) { return 60, height }}}
	if err := s.draw(v); err != nil {
		t.Fatal(err)
	}
	first := b.String()
	for _, want := range []string{"\x1b[2J\x1b[H", "job web at ", "TASK   STATE", "web-0  running", "LAST DECISIONS", "move (overload) [0000000000000000,2000000000000000)"} {
		if !strings.Contains(first, want) {
			t.Errorf("the screen lacks %q:\n%s", want, first)
		}
	}
	for l := range strings.Lines(first) {
		l = strings.NewReplacer("\x1b[2J", "", "\x1b[H", "", "\x1b[K", "", "\x1b[J", "", "\n", "").Replace(l)
		if len([]rune(l)) > 60 {
			t.Errorf("%q is too wide", l)
		}
	}
	b.Reset()
	height = 8
	v.Round = nil
	if err := s.draw(v); err != nil {
		t.Fatal(err)
	}
	if again := b.String(); strings.Contains(again, "\x1b[2J") || strings.Count(again, "\n") > 7 {
		t.Errorf("drawn again, 8 lines:\n%q", again)
	}
	v.Error = "cannot reach it"
	b.Reset()
	if err := s.draw(v); err != nil || !strings.Contains(b.String(), "cannot reach it") || strings.Contains(b.String(), "web-0  running") {
		t.Errorf("an error: %v\n%q", err, b.String())
	}
}

// TestTopLineSaysWhy: without a terminal, too, top says what is wrong first of all.
func TestTopLineSaysWhy(t *testing.T) {
	v := &topView{Job: jobStatus{Job: "web", Health: health.Down, Problems: []string{"no task serves: by order: a is drained by ann", "another"}}}
	if got := v.lines(); len(got) != 1 || !strings.HasSuffix(got[0], "; no task serves: by order: a is drained by ann") {
		t.Errorf("%q", got)
	}
}
