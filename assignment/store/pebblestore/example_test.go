package pebblestore_test

import (
	"context"
	"fmt"
	"os"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
)

// An assigner's use of a store: the first write that follows what is stored wins.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "slicer")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	s, err := pebblestore.Open(dir, pebblestore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	job, err := s.PutJob(ctx, assignment.JobConfig{Name: "cache"}, store.NoVersion)
	fmt.Println(job.Config.Name, "version", job.Version, err)

	tasks := []assignment.Task{{Name: "cache-a", Incarnation: 1, Address: "10.0.0.1:8080", Weight: 1, State: assignment.TaskRunning}}
	whole := assignment.Placement{Starts: []assignment.SliceKey{0}, Owners: []uint32{0}}
	first, err := assignment.Successor(nil, assignment.Header{Job: "cache", StoreID: s.ID(), Generation: 1}, tasks, whole)
	fmt.Println(s.Write(ctx, first), err)

	rival, err := assignment.Successor(nil, assignment.Header{Job: "cache", StoreID: s.ID(), Generation: 2}, tasks, whole)
	fmt.Println(s.Write(ctx, rival), err)

	a, err := s.Read(ctx, "cache")
	fmt.Println(a, err)
	// Output:
	// cache version 1 <nil>
	// <nil> <nil>
	// conflict on jobs/cache/head: 1 is stored <nil>
	// job cache generation 1 (1 tasks, 1 slices) <nil>
}
