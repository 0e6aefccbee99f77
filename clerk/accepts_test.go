package clerk

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestAccepts: of a customer that a task refuses it is sent about twice what it accepts;
// others lose nothing, and within 3 s of there being room all is sent again.
func TestAccepts(t *testing.T) {
	for what, refusal := range map[string]error{
		"quota":            Overloaded{Job: "job", Customer: "flood"},
		"as a status":      Overloaded{Job: "job", Task: "a", Customer: "flood"}.GRPCStatus().Err(),
		"of another job":   Overloaded{Job: "another", Task: "x", Customer: "flood"},
		"no room":          Overloaded{Job: "job", Task: "a"},
		"a stock server's": status.Error(codes.ResourceExhausted, "no room"),
		"too large":        status.Error(codes.ResourceExhausted, "grpc: received message larger than max (5 vs. 4)"),
		"not its own":      status.Error(codes.Unavailable, "connection refused"),
	} {
		synctest.Test(t, func(t *testing.T) {
			counts := what == "quota" || what == "as a status" || what == "a stock server's"
			r := newRetrial(t, slicerv1.Mode_MODE_AFFINITY, 0)
			defer r.stop()
			r.share(0)
			room := 0.
			refuses := func(l overload.Labels) bool {
				if l.Customer != "flood" || l.Criticality != overload.Critical {
					return false
				}
				if room < 1 {
					return true
				}
				room--
				return false
			}
			// ask has a customer ask 100 times a second.
			ask := func(over time.Duration, customer string, c overload.Criticality) (sent, served int) {
				for i := range int(over / (10 * time.Millisecond)) {
					time.Sleep(10 * time.Millisecond)
					room = min(max(room, 0)+.1, 3) // 10 a second
					l := overload.Labels{Criticality: c, Customer: customer}
					l.SetCohort(i * 37 % overload.Cohorts)
					if r.c.Do(overload.WithLabels(t.Context(), l), "k", func(ctx context.Context, _ assignment.Task) error {
						sent++
						if refuses(overload.LabelsOf(ctx)) {
							return refusal
						}
						return nil
					}) == nil {
						served++
					}
				}
				return sent, served
			}
			ask(20*time.Second, "flood", overload.Critical)
			sent, served := ask(20*time.Second, "flood", overload.Critical)
			if served < 150 || served > 205 || counts && (sent < 250 || sent > 500) || !counts && sent != 2000 {
				t.Errorf("%s: %d of 2000 were sent, of which %d were served", what, sent, served)
			}
			for _, x := range []struct {
				customer string
				of       overload.Criticality
			}{{"mail", overload.Critical}, {"flood", overload.CriticalPlus}} {
				if sent, _ := ask(time.Second, x.customer, x.of); sent != 100 {
					t.Errorf("%s: of %s, %s, %d of 100 were sent", what, x.customer, x.of, sent)
				}
			}
			ask(20*time.Second, "flood", overload.Critical)
			throttle := r.c.Throttle("a")
			if throttle.Watched() != counts || r.c.Throttling() != counts {
				t.Errorf("%s: the task is watched: %v", what, throttle.Watched())
			}
			if held := r.c.throttles.held[byRefusals][overload.Critical].Load(); counts != (held > 4000) {
				t.Errorf("%s: %d were held back", what, held)
			}
			refusal = nil
			ask(3*time.Second, "flood", overload.Critical)
			if sent, _ := ask(time.Second, "flood", overload.Critical); sent != 100 {
				t.Errorf("%s: %d of 100 were sent when there was room again", what, sent)
			}
			if ask(20*time.Second, "flood", overload.Critical); throttle.Watched() || r.c.Throttling() {
				t.Errorf("%s: still watched", what)
			}
			// So is what is not asked for again.
			throttle.Watch()
			ask(25*time.Second, "mail", overload.Critical)
			if !throttle.Watched() {
				t.Errorf("%s: not watched for 25 s", what)
			}
			if ask(10*time.Second, "mail", overload.Critical); throttle.Watched() {
				t.Errorf("%s: still watched when nothing is refused any more", what)
			}
			// A task that leaves is forgotten.
			if throttle.Watch(); !r.c.Throttling() {
				t.Errorf("%s: not watched", what)
			}
			r.tasks = r.tasks[1:]
			r.share(0)
			if throttle.Watch(); r.c.Throttling() || throttle.Watched() {
				t.Errorf("%s: a task that has left is watched", what)
			}
		})
	}
}

// TestAcceptsBounded: a client that names ever new customers takes no more room, and who is
// not counted is not held back.
func TestAcceptsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_AFFINITY, 0)
		defer r.stop()
		r.share(0)
		throttle := r.c.Throttle("a")
		throttle.Watch()
		for i := range 1000 {
			name := string(rune('a' + i))
			for range 30 {
				if _, err := throttle.Send(0, name); err == nil {
					throttle.Answered(0, name, true)
				}
			}
		}
		if n := len(throttle.accepts); n != maxPayers {
			t.Errorf("%d are counted", n)
		}
		if _, err := throttle.Send(0, "another"); err != nil {
			t.Error(err)
		}
		var full Overloaded
		if _, err := throttle.Send(0, "a"); !errors.As(err, &full) {
			t.Error("what is refused always is sent")
		}
	})
}

// TestAcceptsOwners: of several owners of a key one that refuses is sent next to nothing, and
// what it would refuse goes to the others; where all refuse requests fail at once.
func TestAcceptsOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_AFFINITY, 0)
		defer r.stop()
		r.share(0, 1, 2)
		refuses := map[string]bool{"a": true}
		calls := map[string]int{}
		ask := func() (failed int) {
			clear(calls)
			for range 10_000 {
				time.Sleep(time.Millisecond)
				if r.c.Do(t.Context(), "k", func(_ context.Context, task assignment.Task) error {
					if calls[task.Name]++; refuses[task.Name] {
						return status.Error(codes.ResourceExhausted, "no room")
					}
					return nil
				}) != nil {
					failed++
				}
			}
			return failed
		}
		if failed := ask(); failed > 60 || calls["a"] != failed {
			t.Errorf("%d of 10000 failed, of which the task has refused %d", failed, calls["a"])
		}
		refuses["b"], refuses["c"] = true, true
		ask()
		if failed := ask(); failed != 10_000 || calls["a"]+calls["b"]+calls["c"] > 120 {
			t.Errorf("%d failed when all refuse: %v", failed, calls)
		}
		clear(refuses)
		time.Sleep(3 * time.Second)
		if failed := ask(); failed > 0 || min(calls["a"], calls["b"], calls["c"]) < 2500 {
			t.Errorf("%d failed when there was room again: %v", failed, calls)
		}
	})
}

// TestAcceptsLevel: of a task that says levels what it refuses without one is not counted.
func TestAcceptsLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetrial(t, slicerv1.Mode_MODE_AFFINITY, 0)
		defer r.stop()
		throttle, refusal := r.c.Throttle("a"), status.Error(codes.ResourceExhausted, "no room")
		if !throttle.Refused(refusal) {
			t.Error("it has said none")
		}
		throttle.Hear(overload.Level{Below: 5, Pause: time.Second})
		throttle.Hear(overload.Level{})
		time.Sleep(levelFor - 1)
		if throttle.Refused(refusal) {
			t.Error("it has said one")
		}
		time.Sleep(time.Millisecond)
		if !throttle.Refused(refusal) {
			t.Error("it has said none for long")
		}
		throttle.Hear(overload.Level{Below: 5, Pause: time.Second})
		r.tasks[0].Incarnation++
		if r.put(0); !throttle.Refused(refusal) {
			t.Error("another incarnation has said one")
		}
	})
}
