package storetest

import (
	"fmt"
	"math/rand/v2"

	"github.com/slicer-project/slicer/assignment"
)

// First returns a job's first assignment: slices of about equal width, over tasks.
func First(job string, storeID uint64, g assignment.Generation, tasks, slices int) *assignment.Assignment {
	p := assignment.Placement{Starts: assignment.Equal(slices), Owners: make([]uint32, slices)}
	for i := range p.Owners {
		p.Owners[i] = uint32(i % tasks)
	}
	return must(assignment.Successor(nil, assignment.Header{Job: job, StoreID: storeID, Generation: g}, Tasks(tasks, "first"), p))
}

// Next returns an assignment that follows prev: share of its slices, at least
// one, have another owner. Equal rng give equal assignments; who marks them as
// one proposer's, in the first task's zone.
func Next(prev *assignment.Assignment, g assignment.Generation, share float64, who string, rng *rand.Rand) *assignment.Assignment {
	p := assignment.Placement{}
	c := prev.Columns()
	p.Starts = append(p.Starts, c.Starts...)
	p.Owners = append(p.Owners, c.Owners...)
	for range max(1, int(share*float64(len(p.Starts)))) {
		i := rng.IntN(len(p.Owners))
		p.Owners[i] = (p.Owners[i] + 1) % uint32(prev.NumTasks())
	}
	return must(assignment.Successor(prev, header(prev, g), Tasks(prev.NumTasks(), who), p))
}

// Shuffled returns an assignment that follows prev and shares no placement with it.
func Shuffled(prev *assignment.Assignment, g assignment.Generation, rng *rand.Rand) *assignment.Assignment {
	p := assignment.Placement{}
	for i := range prev.NumSlices() {
		p.Starts = append(p.Starts, prev.Slice(i).Start)
		p.Owners = append(p.Owners, uint32((prev.Replicas(i).Position(0)+1+rng.IntN(prev.NumTasks()-1))%prev.NumTasks()))
	}
	return must(assignment.Successor(prev, header(prev, g), Tasks(prev.NumTasks(), "first"), p))
}

func header(prev *assignment.Assignment, g assignment.Generation) assignment.Header {
	return assignment.Header{Job: prev.Job(), StoreID: prev.StoreID(), Generation: g}
}

// Tasks returns n tasks that run; the first is in zone.
func Tasks(n int, zone string) []assignment.Task {
	tasks := make([]assignment.Task, n)
	for i := range tasks {
		tasks[i] = assignment.Task{
			Name: fmt.Sprintf("task-%d", i), Incarnation: uint64(i + 1), Address: fmt.Sprintf("10.0.%d.%d:8080", i/256, i%256),
			Index: uint32(i), Weight: 1, State: assignment.TaskRunning,
		}
	}
	tasks[0].Zone = zone
	return tasks
}

// Same reports whether two assignments are equal in everything.
func Same(a, b *assignment.Assignment) bool {
	return a.Header() == b.Header() && a.Checksum() == b.Checksum() && a.NumSlices() == b.NumSlices()
}

func must(a *assignment.Assignment, err error) *assignment.Assignment {
	if err != nil {
		panic(err) // a mistake in a test
	}
	return a
}
