package change_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/change"
)

func task(name string, index uint32, state assignment.TaskState) assignment.Task {
	return assignment.Task{Name: name, Incarnation: 1, Address: name + ":1", Index: index, Weight: 1, State: state}
}

func build(t *testing.T, gen assignment.Generation, tasks []assignment.Task, p assignment.Placement) *assignment.Assignment {
	t.Helper()
	a, err := assignment.Successor(nil, assignment.Header{Job: "j", StoreID: 1, Generation: gen}, tasks, p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

const eighth = assignment.KeyspaceEnd / 8

func TestBetween(t *testing.T) {
	run := assignment.TaskRunning
	var p, q assignment.Placement
	p.Add(0, 0)
	p.Add(2*eighth, 1)
	p.Add(4*eighth, 0, 1)
	p.Add(6*eighth, 1)
	old := build(t, 1, []assignment.Task{task("a", 0, run), task("b", 1, run)}, p)
	// b drains, c comes.
	q.Add(0, 0)
	q.Add(eighth, 1) // an eighth from a to c, by a split
	q.Add(2*eighth, 2)
	q.Add(4*eighth, 0)
	q.Add(5*eighth, 0, 1, 2) // a replica more
	q.Add(6*eighth, 2)
	next := build(t, 2, []assignment.Task{task("a", 0, run), task("c", 1, run), task("b", 2, assignment.TaskDraining)}, q)

	want := change.Change{
		Churn: 2. / 8, Splits: 2, Arrived: []string{"c"},
		States: []change.State{{Task: "b", From: run, To: assignment.TaskDraining}},
		Moves: []change.Move{
			{From: "", To: "c", Share: 1. / 8, Slices: 1},
			{From: "a", To: "c", Share: 1. / 8, Slices: 1},
			{From: "b", To: "", Share: 1. / 8, Slices: 1},
		},
	}
	got := change.Between(old, next)
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	back := change.Between(next, old)
	if back.Merges != 2 || back.Splits != 0 || math.Abs(back.Churn-2./8) > 1e-9 {
		t.Errorf("the way back: %+v", back)
	}
	if same := change.Between(old, old); same.Churn != 0 || len(same.Moves) != 0 {
		t.Errorf("no change: %+v", same)
	}
	if first := change.Between(nil, old); len(first.Arrived) != 2 || first.Churn != 0 {
		t.Errorf("the first assignment: %+v", first)
	}
}

func TestBetweenRestart(t *testing.T) {
	var p, q assignment.Placement
	p.Add(0, 0)
	q.Add(0, 0)
	a := task("a", 0, assignment.TaskRunning)
	old := build(t, 1, []assignment.Task{a}, p)
	a.Incarnation = 2
	got := change.Between(old, build(t, 2, []assignment.Task{a}, q))
	if got.Churn != 1 || len(got.States) != 1 {
		t.Errorf("a restarted task is another owner: %+v", got)
	}
}
