package jobfile_test

import (
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/jobfile"
)

func ExampleParse() {
	configs, err := jobfile.Parse("cache.yaml", []byte("name: cache\nmax_replicas: 4\nbalance:\n  interval: 2s\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(configs[0].Name, configs[0].MaxReplicas, configs[0].Balance.Interval, configs[0].LoadMetric)

	_, err = jobfile.Parse("cache.yaml", []byte("name: cache\nmin_replicas: 20\n# At most:\nmax_replicas: 10\n"))
	fmt.Println(err)
	// Output:
	// cache 4 2s requests
	// cache.yaml:2: min_replicas: 20 is not allowed: want at most max_replicas, which is 10
}

func ExampleChanges() {
	old := assignment.JobConfig{Name: "cache", Zone: "eu-1"}.WithDefaults()
	next := old
	next.Zone, next.MaxReplicas, next.Balance.MoveBudget = "", 20, -1
	for _, c := range jobfile.Changes(old, next) {
		fmt.Println(c)
	}
	// Output:
	// max_replicas: 10 -> 20
	// zone: eu-1 -> ""
	// balance.move_budget: 0.09 -> 0
}
