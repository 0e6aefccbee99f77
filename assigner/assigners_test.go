package assigner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Which assigner is preferred is told as Distributors see it and as it is worked out here.
func TestListAssigners(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		st := openPebble(t)
		n := start(Config{Address: "h1:1", Zone: "eu-1", Stores: []NamedStore{{Backend: st}}})
		other, err := st.Register(t.Context(), store.Candidate{ID: "a2", Address: "h2:1", Zone: "us-1"})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		n.put(&slicerv1.JobConfig{Name: "web", Zone: "us-1"})
		list := func() *slicerv1.ListAssignersResponse {
			t.Helper()
			synctest.Wait()
			got, err := n.admin.ListAssigners(t.Context(), &slicerv1.ListAssignersRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		views := func(d *raw, bs ...*slicerv1.PreferredAssigner) *raw {
			d.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_PreferenceView{PreferenceView: &slicerv1.PreferenceView{First: true, Jobs: bs}}})
			return d
		}
		views(n.attach("d2"), &slicerv1.PreferredAssigner{Job: "web", AssignerId: "a2", ForMs: 5000}, &slicerv1.PreferredAssigner{Job: "No Job", AssignerId: "a2"})
		views(n.attach("d1"), &slicerv1.PreferredAssigner{Job: "web", AssignerId: "a2", ForMs: 1000}, &slicerv1.PreferredAssigner{Job: "gone", AssignerId: ""})
		d := views(n.attach("d3"), &slicerv1.PreferredAssigner{Job: "web", AssignerId: "a1", ForMs: -3})
		synctest.Wait()
		time.Sleep(time.Second)

		got := list()
		if got.AssignerId != "a1" || len(got.Assigners) != 2 || got.Assigners[1].Id != "a2" || got.Assigners[1].Jobs != 1 ||
			got.Assigners[1].Preferred != 1 || got.Assigners[0].Preferred != 1 || got.Assigners[0].Jobs != 0 || got.Assigners[0].Stores[0] != "default" {
			t.Errorf("assigners: %v", got.Assigners)
		}
		if len(got.Distributors) != 3 || got.Distributors[0].Id != "d1" {
			t.Errorf("distributors: %v", got.Distributors)
		}
		if len(got.Jobs) != 2 || got.Jobs[0].Job != "gone" || got.Jobs[1].Chosen != "a2" || got.Jobs[1].Zone != "us-1" {
			t.Fatalf("jobs: %v", got.Jobs)
		}
		b := got.Jobs[1].Views
		if len(b) != 2 || b[0].AssignerId != "a2" || b[0].Distributors != 2 || b[0].ForMs != 2000 || b[1].Distributors != 1 || b[1].ForMs != 1000 {
			t.Errorf("views: %v", b)
		}
		// What is said anew takes the place of all before; a stream that has ended does not count.
		views(d)
		if b = list().Jobs[1].Views; len(b) != 1 {
			t.Errorf("views: %v", b)
		}
		d.close()
		if got = list(); len(got.Distributors) != 2 {
			t.Errorf("distributors: %v", got.Distributors)
		}
	})
}
