package assignment_test

import (
	"fmt"

	"github.com/slicer-project/slicer/assignment"
)

func Example() {
	tasks := []assignment.Task{
		{Name: "cache-a", Incarnation: 1, Address: "10.0.0.1:8080", Index: 0, Weight: 1, State: assignment.TaskRunning},
		{Name: "cache-b", Incarnation: 2, Address: "10.0.0.2:8080", Index: 1, Weight: 1, State: assignment.TaskRunning},
	}
	var p assignment.Placement
	for i, start := range assignment.Equal(4) {
		p.Add(start, uint32(i%2))
	}
	a, err := assignment.Successor(nil, assignment.Header{Job: "cache", StoreID: 1, Generation: 1}, tasks, p)
	if err != nil {
		fmt.Println(err)
		return
	}
	for task := range a.Lookup(assignment.KeyOf("user/4711")).All() {
		fmt.Println(task.Name, task.Address)
	}
	// Output: cache-b 10.0.0.2:8080
}

func ExampleDiff() {
	tasks := []assignment.Task{{Name: "cache-a", Incarnation: 1, Address: "10.0.0.1:8080", Weight: 1, State: assignment.TaskRunning}}
	whole := assignment.Placement{Starts: assignment.Equal(1), Owners: []uint32{0}}
	halves := assignment.Placement{Starts: assignment.Equal(2), Owners: []uint32{0, 0}}
	first, err := assignment.Successor(nil, assignment.Header{Job: "cache", Generation: 1}, tasks, whole)
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := assignment.Successor(first, assignment.Header{Job: "cache", Generation: 2}, tasks, halves)
	if err != nil {
		fmt.Println(err)
		return
	}
	delta, err := assignment.Diff(first, second)
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := assignment.Apply(first, delta)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(again, again.Checksum() == second.Checksum(), "since", again.Replicas(1).Since(0))
	// Output: job cache generation 2 (1 tasks, 2 slices) true since 1
}

func ExampleSlice_StorageRange() {
	lo, hi := assignment.Slice{Start: 0, End: assignment.KeyspaceEnd / 2}.StorageRange()
	fmt.Println(lo, hi, assignment.KeyOf("a").StoragePrefix() < hi)
	// Output: 0000000000000000 4000000000000000 false
}
