// Package jobtest makes assignments of a job for tests. The same calls make the same
// assignments.
package jobtest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	Job   = "web"
	Store = 0xabc
	// Generation is that of the first assignment, a time in Unix milliseconds.
	Generation = 1_700_000_000_000
)

// Tasks are n running tasks.
func Tasks(n int) []assignment.Task {
	tasks := make([]assignment.Task, n)
	for i := range tasks {
		tasks[i] = assignment.Task{
			Name: fmt.Sprintf("task-%d", i), Incarnation: uint64(i + 1), Address: fmt.Sprintf("10.0.0.%d:80", i%250+1),
			Index: uint32(i), Weight: 1, State: assignment.TaskRunning,
		}
	}
	return tasks
}

// First makes a first assignment of a job of some slices, dealt out at random.
func First(t testing.TB, job string, store uint64, g assignment.Generation, slices int) *assignment.Assignment {
	t.Helper()
	rnd := rand.New(rand.NewPCG(uint64(g), 1))
	tasks := Tasks(max(10, slices/100))
	p := assignment.Placement{Starts: assignment.Equal(slices), Owners: make([]uint32, slices)}
	for i := range p.Owners {
		p.Owners[i] = uint32(rnd.IntN(len(tasks)))
	}
	a, err := assignment.Successor(nil, assignment.Header{Job: job, StoreID: store, Generation: g}, tasks, p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// After makes the assignment that follows prev: moves slices go to another task.
func After(t testing.TB, prev *assignment.Assignment, moves int) *assignment.Assignment {
	t.Helper()
	rnd := rand.New(rand.NewPCG(uint64(prev.Generation()), 2))
	c := prev.Columns()
	p := assignment.Placement{Starts: append([]assignment.SliceKey(nil), c.Starts...), Owners: append([]uint32(nil), c.Owners...)}
	for range moves {
		i := rnd.IntN(len(p.Owners))
		p.Owners[i] = (p.Owners[i] + 1 + uint32(rnd.IntN(prev.NumTasks()-1))) % uint32(prev.NumTasks())
	}
	h := prev.Header()
	h.Generation++
	a, err := assignment.Successor(prev, h, Tasks(prev.NumTasks()), p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ClerkHello is that of a clerk.
func ClerkHello(id string) *slicerv1.Hello {
	return &slicerv1.Hello{Job: Job, Role: slicerv1.Role_ROLE_CLERK, ClientId: id}
}

// SliceletHello is that of a slicelet that runs.
func SliceletHello(task string, incarnation uint64) *slicerv1.Hello {
	return &slicerv1.Hello{
		Job: Job, Role: slicerv1.Role_ROLE_SLICELET, ClientId: "c-" + task,
		Task: &slicerv1.Task{
			Name: task, Incarnation: incarnation, Address: "10.1.1.1:80", Weight: 1,
			State: slicerv1.TaskState_TASK_STATE_RUNNING,
		},
		Report: &slicerv1.Report{Sequence: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING},
	}
}
