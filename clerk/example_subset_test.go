package clerk_test

import (
	"context"
	"log"
	"os"
	"strconv"
	"strings"

	"github.com/slicer-project/slicer/clerk"
)

// A client that keeps connections to 20 of the job's tasks. In a StatefulSet its
// index is the number at the end of the pod's name; elsewhere, leave Index out and
// the control plane gives it one.
func ExampleSubsetConfig() {
	pod := os.Getenv("POD_NAME") // such as frontend-17
	ordinal, err := strconv.Atoi(pod[strings.LastIndexByte(pod, '-')+1:])
	if err != nil {
		log.Fatal(err)
	}
	c, err := clerk.New(clerk.Config{
		Job: "cache", Distributors: []string{"slicer-1.example:4720", "slicer-2.example:4720"},
		ClientID: pod, Subset: clerk.SubsetConfig{Size: 20, Index: &ordinal},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if err := c.Ready(context.Background()); err != nil {
		log.Fatal(err)
	}
	for { // what the adapters clerkgrpc and clerkhttp do
		changed := c.Changed()
		subset := c.Subset()
		if _, known := subset.Index(); known {
			for _, task := range subset.Tasks() {
				connect(task.Address) // unless there is a connection already
			}
		}
		<-changed
	}
}

func connect(string) {}
