package subscriber_test

import (
	"context"
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment/subscriber"
)

// An observer prints each new generation of a job for a minute.
func Example() {
	s, err := subscriber.New(subscriber.Config{
		Job:          "cache",
		Role:         subscriber.Observer,
		ClientID:     subscriber.NewClientID("inspector"),
		Distributors: []string{"slicer-1.example:4720", "slicer-2.example:4720"},
		Backups:      []string{"slicer-backup.example:7001"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		changed := s.Changed()
		if a := s.State().Assignment; a != nil {
			fmt.Println(a.Generation(), a.NumSlices(), "slices", a.NumTasks(), "tasks")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
