package clerk

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestThrottle: what a task has said that it refuses goes to other owners, or else fails
// without being sent, but for trial requests, until one of these is served.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_AFFINITY, 0)
		defer r.stop()
		r.share(0, 1)
		level := map[string]overload.Level{}
		calls, trials := map[string]int{}, 0
		ask := func(c overload.Criticality) error {
			labels := overload.Labels{Criticality: c}
			labels.SetCohort(5)
			return r.c.Do(overload.WithLabels(t.Context(), labels), "k", func(ctx context.Context, task assignment.Task) error {
				calls[task.Name]++
				trials += StandsForOf(ctx)
				if l := level[task.Name]; l.Below > 0 && overload.LabelsOf(ctx).Priority() < l.Below {
					return Overloaded{Job: "job", Task: task.Name, Elsewhere: true, Level: l}
				}
				return nil
			})
		}
		l := overload.Level{Below: 2 * overload.Cohorts, Pause: time.Second}
		level["a"] = l
		for range 100 {
			if err := ask(overload.Sheddable); err != nil {
				t.Fatal(err)
			}
		}
		if calls["a"] != 1 || !r.c.Throttling() {
			t.Errorf("a task that had said that it refuses was asked: %v", calls)
		}
		level["b"] = l
		failed := func(n int) {
			t.Helper()
			for range n {
				var full Overloaded
				if err := ask(overload.Sheddable); !errors.As(err, &full) || full.Elsewhere {
					t.Fatal(err)
				}
			}
		}
		failed(1)
		before := calls["a"] + calls["b"]
		failed(10)
		if n := calls["a"] + calls["b"] - before; n > 1 || trials > 2 {
			t.Errorf("%d were sent, and trial requests stand for %d", n, trials)
		}
		if err := ask(overload.Critical); err != nil {
			t.Errorf("what the tasks do not refuse: %v", err)
		}
		if n := r.c.throttles.held[overload.Sheddable].Load(); n < 9 || n > 12 {
			t.Errorf("%v were held back", n)
		}
		clear(level)
		time.Sleep(1500 * time.Millisecond)
		if before := trials; ask(overload.Sheddable) != nil || trials == before {
			t.Error("no trial request was sent")
		}
		for range 10 {
			if err := ask(overload.Sheddable); err != nil {
				t.Error(err)
			}
		}
		// One that leaves is forgotten, and what it said last counts for nothing.
		left := r.c.Throttle("a")
		left.Hear(l)
		r.tasks = r.tasks[1:]
		r.share(0)
		left.Hear(l)
		if r.c.Throttle("b").Hear(overload.Level{}); r.c.Throttling() || r.c.Throttle("a") == left {
			t.Error("what a task that has left said is still believed")
		}
		// What is not heard again is forgotten.
		r.c.Throttle("b").Hear(l)
		time.Sleep(2 * time.Second)
		if _, err := r.c.Throttle("b").Send(0); err != nil || r.c.Throttling() {
			t.Errorf("after two pauses: %v", err)
		}
		// Another job's task says nothing of this one's.
		r.c.Throttle("b").HearRefusal(Overloaded{Job: "another", Task: "b", Level: l})
		r.c.Throttle("b").HearRefusal(Overloaded{Job: "job", Task: "c", Level: l})
		if r.c.Throttling() {
			t.Error("it is believed of another task")
		}
	})
}

// TestThrottleDraining: a task that has said that it drains does not when it has started anew.
func TestThrottleDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_AFFINITY, 0)
		defer r.stop()
		a := r.c.Throttle("a")
		r.put(0)
		a.HearDraining(true)
		r.put(0)
		if !a.Draining() {
			t.Error("it is forgotten with the next assignment")
		}
		r.tasks[0].Incarnation++
		r.put(0)
		if a.Draining() {
			t.Error("it is still said to drain")
		}
	})
}

// TestThrottleByDefault: a request without a criticality is held back as the job's default
// is, and one without a cohort gets one.
func TestThrottleByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_AFFINITY, 0)
		defer r.stop()
		if l := r.c.Labels(t.Context()); l != (overload.Labels{}) {
			t.Errorf("while all have room labels are %+v", l)
		}
		r.c.Throttle("a").Hear(overload.Level{Below: 1, Pause: time.Second})
		if _, ok := r.c.Labels(t.Context()).Cohort(); !ok {
			t.Error("no cohort was drawn")
		}
		for want, m := range map[overload.Criticality]*slicerv1.OverloadConfig{
			overload.Critical: nil, overload.Sheddable: {DefaultCriticality: slicerv1.Criticality_CRITICALITY_SHEDDABLE},
		} {
			r.server.Say(&slicerv1.Status{Mode: slicerv1.Mode_MODE_AFFINITY, Overload: m})
			synctest.Wait()
			if c := r.c.Priority(overload.Labels{}).Criticality(); c != want {
				t.Errorf("the criticality is %s, want %s", c, want)
			}
		}
	})
}
