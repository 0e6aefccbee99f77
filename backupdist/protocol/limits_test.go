package protocol

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Slicelets are told the limits of the job's config once, after the status that says that there are
// some, and again when they change; others are not.
func TestLimits(t *testing.T) {
	limits := func(rate float64) assignment.Limits {
		l, err := assignment.LimitsOf(assignment.Limit{}, map[string]assignment.Limit{"batch": {Rate: rate}})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	now := time.UnixMilli(1)
	j := NewJob("web")
	read := func(l assignment.Limits) {
		t.Helper()
		c := assignment.JobConfig{Name: "web", Limits: l}.WithDefaults()
		if err := j.Read(now, Reading{Exists: true, Config: c}, false, 0); err != nil {
			t.Fatal(err)
		}
	}
	subs := map[slicerv1.Role]*Subscriber{}
	for _, role := range []slicerv1.Role{slicerv1.Role_ROLE_CLERK, slicerv1.Role_ROLE_SLICELET, slicerv1.Role_ROLE_OBSERVER} {
		s, err := NewSubscriber(now, &slicerv1.Hello{Job: "web", Role: role, Task: &slicerv1.Task{Name: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		subs[role] = s
	}
	// sent is what a subscriber is sent: s for a status without limits, S for one with, and rates.
	expect := func(when, slicelet, others string) {
		t.Helper()
		for role, s := range subs {
			got := ""
			for send := s.Next(now, j.State()); send != (Send{}); send = s.Next(now, j.State()) {
				switch {
				case send.Quotas != nil && len(send.Quotas.Customer) == 0:
					for _, c := range send.Quotas.Limits.Customers {
						got += map[float64]string{10: "1", 20: "2"}[c.Rate]
					}
				case send.Status.GetLimited():
					got += "S"
				case send.Status != nil:
					got += "s"
				default:
					t.Fatalf("%s: %+v", when, send)
				}
			}
			want := others
			if role == slicerv1.Role_ROLE_SLICELET {
				want = slicelet
			}
			if got != want {
				t.Errorf("%s: %v is sent %q, want %q", when, role, got, want)
			}
		}
	}
	read(limits(10))
	expect("at first", "S1", "S")
	read(limits(10))
	expect("read again", "", "")
	read(limits(20))
	expect("changed", "2", "")
	now = now.Add(repeatEvery)
	expect("as the status is repeated", "S", "S")
	read(assignment.Limits{})
	expect("lifted", "s", "s")
	read(limits(20))
	expect("set anew", "S2", "S")
}
