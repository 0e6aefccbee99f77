package assigner

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Who is preferred is told as Distributors believe it and as it is reckoned here.
func TestListAssigners(t *testing.T) {
	now := generate.Now{Mono: time.Minute, Wall: time.UnixMilli(1_700_000_000_000)}
	v, err := NewDriven(Config{ID: "a1", Address: "h1:1", Zone: "eu-1"}, 7, now)
	if err != nil {
		t.Fatal(err)
	}
	v.Candidates(now, []store.Candidate{{ID: "a1", Address: "h1:1", Zone: "eu-1"}, {ID: "a2", Address: "h2:1", Zone: "us-1"}}, 1)
	cfg := assignment.JobConfig{Name: "web", Zone: "us-1"}.WithDefaults()
	v.StoreChanged(now, "web")
	v.Step(now)
	v.Loaded(now, "web", generate.Loaded{Exists: true, Job: store.Job{Config: cfg, Version: 1}})
	v.Step(now)
	tell := func(name string, bs ...*slicerv1.Belief) *DistributorPeer {
		p, err := v.Attached(now, &slicerv1.DistributorHello{DistributorId: name}, func(*slicerv1.AttachResponse) {})
		if err != nil {
			t.Fatal(err)
		}
		v.FromDistributor(now, p, &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Beliefs{Beliefs: &slicerv1.Beliefs{First: true, Jobs: bs}}})
		return p
	}
	tell("d2", &slicerv1.Belief{Job: "web", AssignerId: "a2", ForMs: 5000}, &slicerv1.Belief{Job: "No Job", AssignerId: "a2"})
	tell("d1", &slicerv1.Belief{Job: "web", AssignerId: "a2", ForMs: 1000}, &slicerv1.Belief{Job: "gone", AssignerId: ""})
	p := tell("d3", &slicerv1.Belief{Job: "web", AssignerId: "a1", ForMs: -3})
	now.Mono += time.Second
	v.Step(now)

	got := v.a.assigners()
	if got.AssignerId != "a1" || len(got.Assigners) != 2 || got.Assigners[1].Id != "a2" || got.Assigners[1].Jobs != 1 ||
		got.Assigners[1].Believed != 1 || got.Assigners[0].Believed != 1 || got.Assigners[0].Jobs != 0 || got.Assigners[0].Stores[0] != "default" {
		t.Errorf("assigners: %v", got.Assigners)
	}
	if len(got.Distributors) != 3 || got.Distributors[0].Id != "d1" {
		t.Errorf("distributors: %v", got.Distributors)
	}
	if len(got.Jobs) != 2 || got.Jobs[0].Job != "gone" || got.Jobs[1].Chosen != "a2" || got.Jobs[1].Zone != "us-1" {
		t.Fatalf("jobs: %v", got.Jobs)
	}
	b := got.Jobs[1].Beliefs
	if len(b) != 2 || b[0].AssignerId != "a2" || b[0].Distributors != 2 || b[0].ForMs != 2000 || b[1].Distributors != 1 || b[1].ForMs != 1000 {
		t.Errorf("beliefs: %v", b)
	}
	// What is said anew takes the place of all before; who leaves is not counted.
	v.FromDistributor(now, p, &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Beliefs{Beliefs: &slicerv1.Beliefs{First: true}}})
	if b = v.a.assigners().Jobs[1].Beliefs; len(b) != 1 {
		t.Errorf("beliefs: %v", b)
	}
	v.Detached(now, p)
	if got = v.a.assigners(); len(got.Distributors) != 2 {
		t.Errorf("distributors: %v", got.Distributors)
	}
}
