package fanout

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func viewOf(revision int64, store uint64, jobs ...string) *slicerv1.Preference {
	p := &slicerv1.Preference{Revision: revision, StoreId: store}
	for i := 0; i < len(jobs); i += 2 {
		p.Jobs = append(p.Jobs, &slicerv1.JobPreference{Job: jobs[i], AssignerId: jobs[i+1]})
	}
	return p
}

func TestPreferences(t *testing.T) {
	var p Preferences
	expect := func(job, want string) {
		t.Helper()
		if got := p.Preferred(job); got != want {
			t.Errorf("%s: %q is preferred, want %q", job, got, want)
		}
	}
	expect("x", "")
	p.Update("a1", viewOf(5, 1, "x", "a1", "y", "a2"))
	p.Update("a2", viewOf(4, 1, "x", "a2", "z", "a2"))
	expect("x", "a1")
	expect("y", "a2")
	expect("z", "a2") // named by the older view alone
	p.Update("a2", viewOf(6, 1, "x", "a2"))
	expect("x", "a2")
	expect("z", "")
	p.Update("a1", viewOf(6, 1, "x", "a3"))
	expect("x", "a3") // of two views of one revision always the same one
	p.Update("a2", viewOf(7, 1, "x", ""))
	expect("x", "")
	p.Update("a2", viewOf(1, 1, "x", "a2")) // the registry began anew
	p.Update("a1", viewOf(2, 1, "x", "a1"))
	expect("x", "a1")
	p.Update("a2", viewOf(99, 2, "w", "a2")) // of another store: numbers do not compare
	expect("x", "a1")
	expect("w", "a2")
	p.Forget("a1")
	expect("x", "a2")
	if got := p.Jobs(); !slices.Equal(got, []string{"w", "x"}) {
		t.Errorf("jobs %v", got)
	}
	for i := range uint64(10 * maxViews) {
		p.Update("a2", viewOf(1, i))
	}
	if len(p.views) > maxViews {
		t.Errorf("%d views are kept", len(p.views))
	}
}

func TestCandidatesAreRememberedWhenAllAreGone(t *testing.T) {
	var p Preferences
	v := viewOf(1, 1)
	v.Candidates = []*slicerv1.Candidate{{AssignerId: "a2", Address: "h2:1", Zone: "eu-1"}, {AssignerId: "a1", Address: "h1:1"}}
	p.Update("a1", v)
	p.Update("a3", viewOf(0, 1))
	want := []candidate{{"a1", "h1:1", ""}, {"a2", "h2:1", "eu-1"}}
	if got := p.Candidates(); !slices.Equal(got, want) {
		t.Errorf("candidates %v", got)
	}
	p.Forget("a3")
	p.Forget("a1")
	if got := p.Candidates(); !slices.Equal(got, want) {
		t.Errorf("candidates when all are gone: %v", got)
	}
}

func TestStandInSpreadsAndIsSteady(t *testing.T) {
	ids := []string{"a1", "a2", "a3"}
	count := make(map[string]int)
	moved := 0
	for i := range 3000 {
		job := fmt.Sprintf("job-%d", i)
		who := StandIn(ids, job)
		count[who]++
		if StandIn([]string{"a3", "a1", "a2"}, job) != who {
			t.Fatal("the order matters")
		}
		if who != "a2" && StandIn([]string{"a1", "a3"}, job) != who {
			moved++
		}
	}
	for _, id := range ids {
		if count[id] < 900 || count[id] > 1100 {
			t.Errorf("%s stands in for %d of 3000 jobs", id, count[id])
		}
	}
	if moved > 0 {
		t.Errorf("%d jobs have moved between those that stayed", moved)
	}
	if StandIn(nil, "x") != "" {
		t.Error("one stands in that is not there")
	}
}

func TestNewestViewsAreToldBelow(t *testing.T) {
	var p Preferences
	if got := p.Newest(); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
	view := func(store uint64, revision int64, job, id string) *slicerv1.Preference {
		return &slicerv1.Preference{
			StoreId: store, Revision: revision, Jobs: []*slicerv1.JobPreference{{Job: job, AssignerId: id}},
			Candidates: []*slicerv1.Candidate{{AssignerId: id, Address: id + ":1", Zone: "z"}},
		}
	}
	other, newer := view(1, 9, "a", "a1"), view(2, 4, "b", "a2")
	p.Update("a1", other)
	p.Update("a1", view(2, 3, "b", "a1"))
	p.Update("a2", newer)
	got := p.Newest()
	if len(got) != 2 || !proto.Equal(got[0], other) || !proto.Equal(got[1], newer) {
		t.Errorf("told %v", got)
	}
}
