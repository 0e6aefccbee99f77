package autosharding_test

import (
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/autosharding"
)

// A Distributor is made with what its --autosharding-endpoint says.
func ExampleCheckEndpoint() {
	fmt.Println(autosharding.CheckEndpoint("--autosharding-endpoint", "name.web.default.svc.cluster.local"))
	fmt.Println(autosharding.CheckEndpoint("--autosharding-endpoint", "ip"))
	// Output:
	// <nil>
	// --autosharding-endpoint: "ip" is not allowed: want 1 to 4 different ones of address, name, name.SUFFIX, /address and HOST/address, separated by commas; suffix and host of at most 253 printable ASCII characters without space or slash
}

// What a client says to have sent to a range of keys becomes load of the tasks
// that own them.
func ExampleLoads() {
	tasks := []assignment.Task{
		{Name: "web-0", Incarnation: 1, Address: "10.0.0.1:80", Index: 0, Weight: 1, State: assignment.TaskRunning},
		{Name: "web-1", Incarnation: 2, Address: "10.0.0.2:80", Index: 1, Weight: 1, State: assignment.TaskRunning},
	}
	a, err := assignment.Successor(nil, assignment.Header{Job: "web", StoreID: 1, Generation: 1}, tasks,
		assignment.Placement{Starts: assignment.Equal(2), Owners: []uint32{0, 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var l autosharding.Loads
	now := time.Unix(0, 0)
	l.Add(now, a, &autosharding.Report{Window: 10 * time.Second, Starts: assignment.Equal(4), Amount: []float64{10, 20, 0, 30}})
	now = now.Add(10 * time.Second)
	for _, t := range []string{"web-0", "web-1"} {
		fmt.Println(t, l.Take(now, a, t).Total, "requests a second")
	}
	// Output:
	// web-0 3 requests a second
	// web-1 3 requests a second
}
