package health_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/health"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestStates(t *testing.T) {
	now := time.UnixMilli(1e12)
	running := func(shed float64) *slicerv1.TaskStatus {
		return &slicerv1.TaskStatus{ShedRate: shed, Task: &slicerv1.Task{Name: "t", Weight: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING}}
	}
	for _, c := range []struct {
		name   string
		want   health.State
		told   string
		change func(*slicerv1.InspectJobResponse)
	}{
		{"as it should be", health.OK, "", func(*slicerv1.InspectJobResponse) {}},
		{"uneven", health.Hot, "t carries 1.00 times the mean, and could carry 1.00", func(m *slicerv1.InspectJobResponse) { m.Imbalance, m.Tasks[0].Load = 1.6, 1 }},
		{"uneven as it has to be", health.OK, "", func(m *slicerv1.InspectJobResponse) { m.Imbalance, m.Floor = 4, 3 }},
		{"one refuses", health.Refusing, "t refuses 3 requests a second", func(m *slicerv1.InspectJobResponse) { m.Tasks = append(m.Tasks, running(3)) }},
		{"two refuse", health.Refusing, "2 of 3 tasks refuse 5 requests a second for want of room, t the most", func(m *slicerv1.InspectJobResponse) { m.Tasks = append(m.Tasks, running(3), running(2)) }},
		{"the dead refuse nothing", health.OK, "", func(m *slicerv1.InspectJobResponse) {
			m.Tasks = append(m.Tasks, running(3))
			m.Tasks[1].Task.State = slicerv1.TaskState_TASK_STATE_DEAD
		}},
		{"no tasks any more", health.Down, "no task serves", func(m *slicerv1.InspectJobResponse) { m.Tasks = nil }},
		{"all are dead", health.Down, "1 are dead", func(m *slicerv1.InspectJobResponse) { m.Tasks[0].Task.State = slicerv1.TaskState_TASK_STATE_DEAD }},
		{"all are excluded", health.Down, "1 are excluded", func(m *slicerv1.InspectJobResponse) {
			m.Overrides = &slicerv1.Overrides{Excluded: []*slicerv1.Exclusion{{Task: "t"}}}
		}},
		{"all are drained", health.Down, "no task serves: 0 start, 1 drain, 0 are excluded, 0 are dead; by order: t is drained by spiffe://corp/ann (bad disk), u is drained by ben, v is excluded by an operator", func(m *slicerv1.InspectJobResponse) {
			m.Tasks[0].Task.State = slicerv1.TaskState_TASK_STATE_DRAINING
			m.Overrides = &slicerv1.Overrides{Drains: []*slicerv1.Drain{{Task: "t", Stamp: &slicerv1.Stamp{Identity: "spiffe://corp/ann", Who: "ann", Why: "bad disk"}}, {Task: "u", Stamp: &slicerv1.Stamp{Identity: "anonymous", Who: "ben"}}},
				Excluded: []*slicerv1.Exclusion{{Task: "v"}}}
		}},
		{"many are drained", health.Down, "0 are dead; by order: t0 is drained by ann, t1 is drained by ann, t2 is drained by ann, t3 is drained by ann, t4 is drained by ann, t5 is drained by ann, t6 is drained by ann, t7 is drained by ann, and so are 248 more", func(m *slicerv1.InspectJobResponse) {
			m.Tasks, m.Overrides = nil, &slicerv1.Overrides{}
			for i := range 256 {
				m.Overrides.Drains = append(m.Overrides.Drains, &slicerv1.Drain{Task: fmt.Sprint("t", i), Stamp: &slicerv1.Stamp{Who: "ann"}})
			}
		}},
		{"one of two is drained", health.OK, "", func(m *slicerv1.InspectJobResponse) {
			m.Tasks = append(m.Tasks, running(0))
			m.Tasks[1].Task.State = slicerv1.TaskState_TASK_STATE_DRAINING
			m.Overrides = &slicerv1.Overrides{Drains: []*slicerv1.Drain{{Task: "t"}}}
		}},
		{"new", health.Empty, "", func(m *slicerv1.InspectJobResponse) { m.Tasks, m.Generation = nil, 0 }},
		{"held", health.Undecided, "just taken over", func(m *slicerv1.InspectJobResponse) { m.Holding = "just taken over" }},
		{"not preferred", health.Undecided, "b is preferred", func(m *slicerv1.InspectJobResponse) { m.Holding, m.Preferred = "b is preferred", false }},
		{"the store fails", health.StoreDown, "store default does not answer: no route", func(m *slicerv1.InspectJobResponse) { m.StoreError, m.Holding, m.VanishedMs = "no route", "x", 5 }},
		{"frozen by itself", health.Frozen, "frozen for 5s", func(m *slicerv1.InspectJobResponse) { m.VanishedMs, m.Holding = 5000, "frozen for 5s" }},
		{"frozen by order", health.Frozen, "frozen by ann", func(m *slicerv1.InspectJobResponse) {
			m.Holding, m.Overrides = "frozen by ann", &slicerv1.Overrides{Freeze: &slicerv1.Freeze{UntilUnixMs: 1e12 + 1}}
		}},
		{"frozen once", health.OK, "", func(m *slicerv1.InspectJobResponse) {
			m.Overrides = &slicerv1.Overrides{Freeze: &slicerv1.Freeze{UntilUnixMs: 1e12 - 1}}
		}},
		{"uneven by nine requests in ten seconds", health.OK, "", func(m *slicerv1.InspectJobResponse) {
			m.Imbalance, m.Tasks[0].Load = 3, .9
			m.Job = &slicerv1.Job{Config: &slicerv1.JobConfig{LoadMetric: assignment.LoadRequests}}
		}},
		{"uneven by a request a second", health.Hot, "t carries", func(m *slicerv1.InspectJobResponse) {
			m.Imbalance, m.Tasks[0].Load = 3, 1
			m.Job = &slicerv1.Job{Config: &slicerv1.JobConfig{LoadMetric: assignment.LoadRequests}}
		}},
		{"slow", health.Slow, "2 subscribers have", func(m *slicerv1.InspectJobResponse) { m.Progress = &slicerv1.Progress{SlowTotal: 2} }},
	} {
		m := &slicerv1.InspectJobResponse{Generation: 5, Preferred: true, Imbalance: 1.4, Floor: 1, Tasks: []*slicerv1.TaskStatus{running(0)}}
		c.change(m)
		j := health.Of(m, false, now)
		if j.State != c.want || (c.told == "") != (len(j.Problems) == 0) || !strings.Contains(strings.Join(j.Problems, "\n"), c.told) {
			t.Errorf("%s: %s %q, want %s with %q", c.name, j.State, j.Problems, c.want, c.told)
		}
		if !slices.Contains(health.WorstFirst, j.State) {
			t.Errorf("%s has no place in the list", j.State)
		}
	}
}

// TestDeadTasksHaveNoLoad: what a task carried that has died is carried by others now.
func TestDeadTasksHaveNoLoad(t *testing.T) {
	task := func(state slicerv1.TaskState, load, weight float64) *slicerv1.TaskStatus {
		return &slicerv1.TaskStatus{Load: load, Task: &slicerv1.Task{Name: state.String(), Weight: weight, State: state}}
	}
	m := &slicerv1.InspectJobResponse{Preferred: true, Generation: 1, Tasks: []*slicerv1.TaskStatus{
		task(slicerv1.TaskState_TASK_STATE_DEAD, 100, 1), task(slicerv1.TaskState_TASK_STATE_RUNNING, 6, 2), task(slicerv1.TaskState_TASK_STATE_DRAINING, 1, 1),
	}}
	j := health.Of(m, false, time.UnixMilli(1e12))
	if j.Load != 7 || j.Mean != 3 || j.Tasks != (health.Tasks{Serving: 1, Draining: 1, Dead: 1}) || j.Of(m.Tasks[0]) != 0 || j.Of(m.Tasks[1]) != 1 {
		t.Errorf("%+v", j)
	}
}
