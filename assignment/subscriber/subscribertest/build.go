package subscribertest

import (
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

// Task makes one that is running, by name and index.
func Task(name string, index uint32) assignment.Task {
	return assignment.Task{
		Name: name, Incarnation: 1, Address: name + ".example:80", Index: index, Weight: 1, State: assignment.TaskRunning,
	}
}

// Equal makes an assignment of as many slices of equal width as there are
// owners, each given by its position in tasks, that follows prev.
func Equal(t testing.TB, prev *assignment.Assignment, h assignment.Header, tasks []assignment.Task, owners ...uint32) *assignment.Assignment {
	t.Helper()
	a, err := assignment.Successor(prev, h, tasks, assignment.Placement{Starts: assignment.Equal(len(owners)), Owners: owners})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// History is what a store went through: assignment i has generation i+1.
func History(t testing.TB, store uint64, n int) []*assignment.Assignment {
	tasks := []assignment.Task{Task("a", 0), Task("b", 1)}
	all := make([]*assignment.Assignment, n)
	var prev *assignment.Assignment
	for i := range all {
		h := assignment.Header{Job: "job", StoreID: store, Generation: assignment.Generation(i + 1)}
		all[i] = Equal(t, prev, h, tasks, uint32(i%2), uint32(i/2%2), 0)
		prev = all[i]
	}
	return all
}
