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
		if n := r.c.throttles.held[byLevel][overload.Sheddable].Load(); n < 9 || n > 12 {
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
		if _, err := r.c.Throttle("b").Send(0, ""); err != nil || r.c.Throttling() {
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
		// One that is known later than its task is not forgotten either.
		b := r.c.Throttle("b")
		b.HearDraining(true)
		b.Hear(overload.Level{Below: 9, Pause: time.Second})
		if r.put(0); !b.Draining() || !b.Holds(3, "") {
			t.Error("what a task has said is forgotten with the next assignment")
		}
		r.tasks[0].Incarnation++
		r.tasks[1].Incarnation++
		r.put(0)
		if b.Draining() || b.Holds(3, "") || r.c.Throttling() {
			t.Error("what a task has said is believed of another incarnation")
		}
		if a.Draining() {
			t.Error("it is still said to drain")
		}
	})
}

// TestThrottleTold: what a Distributor says of tasks counts before they say it themselves, for
// the incarnation that it says it of, until it does not say it any more or they know better.
func TestThrottleTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_AFFINITY, 0)
		defer r.stop()
		r.share(0, 1)
		say := func(conditions ...*slicerv1.TaskCondition) {
			r.server.Say(&slicerv1.Status{Mode: slicerv1.Mode_MODE_AFFINITY, Conditions: conditions})
			synctest.Wait()
		}
		calls := map[string]int{}
		ask := func(n int) (held int) {
			clear(calls)
			for range n {
				labels := overload.Labels{Criticality: overload.Sheddable}
				labels.SetCohort(5)
				err := r.c.Do(overload.WithLabels(t.Context(), labels), "k", func(_ context.Context, task assignment.Task) error {
					calls[task.Name]++
					return nil
				})
				var full Overloaded
				if errors.As(err, &full) {
					held++
				} else if err != nil {
					t.Fatal(err)
				}
			}
			return held
		}
		of := func(i int, draining bool, level uint32) *slicerv1.TaskCondition {
			task := r.tasks[i]
			return &slicerv1.TaskCondition{Task: task.Name, Incarnation: task.Incarnation, Draining: draining, Level: level, PauseMs: 30_000}
		}
		say(of(0, true, 0))
		if held := ask(50); held > 0 || calls["a"] > 0 || !r.c.Throttle("a").Draining() || r.c.Throttling() {
			t.Errorf("a drains: %v, %d held back", calls, held)
		}
		// Where all drain they have to do.
		say(of(0, true, 0), of(1, true, 0))
		if held := ask(50); held > 0 || calls["a"] == 0 || calls["b"] == 0 {
			t.Errorf("both drain: %v, %d held back", calls, held)
		}
		say(of(0, false, 200))
		if held := ask(50); held > 0 || calls["a"] > 0 || r.c.Throttle("b").Draining() {
			t.Errorf("a is full: %v, %d held back", calls, held)
		}
		say(of(0, false, 200), of(1, false, 2000))
		if held := ask(50); held < 49 || !r.c.Throttle("b").Holds(overload.Priorities-2, "") {
			t.Errorf("both are full: %v, %d held back", calls, held)
		}
		// b knows better.
		r.c.Throttle("b").Hear(overload.Level{})
		if held := ask(50); held > 0 || calls["a"] > 0 {
			t.Errorf("b has room: %v, %d held back", calls, held)
		}
		say(of(1, false, 200))
		if held := ask(50); held > 0 || calls["b"] == 0 {
			t.Errorf("b has just said that it has room: %v, %d held back", calls, held)
		}
		time.Sleep(4 * time.Second)
		say(of(1, false, 200))
		if held := ask(50); held > 0 || calls["b"] > 0 {
			t.Errorf("b is full: %v, %d held back", calls, held)
		}
		// Nothing is said of a new incarnation, nor of a task that is not known.
		r.tasks[1].Incarnation++
		r.put(1)
		say(of(0, false, 0), &slicerv1.TaskCondition{Task: "b", Incarnation: r.tasks[1].Incarnation - 1, Level: 200}, &slicerv1.TaskCondition{Task: "stranger", Level: 5})
		if held := ask(50); held > 0 || calls["b"] != 50 || r.c.Throttling() || len(r.c.throttles.byTask) > 2 {
			t.Errorf("another incarnation: %v, %d held back", calls, held)
		}
		say(of(1, true, 300))
		if r.tasks = r.tasks[:1]; !r.c.Throttling() {
			t.Error("b is not told to be full")
		}
		r.put(0)
		say()
		if r.c.Throttling() || r.c.throttles.drains.Load() != 0 || len(r.c.throttles.byTask) > 1 {
			t.Error("what has left is still known")
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
