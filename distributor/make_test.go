package distributor

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/internal/jobtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	testJob   = jobtest.Job
	testStore = jobtest.Store
	baseGen   = jobtest.Generation
)

var (
	firstOf, after, testTasks = jobtest.First, jobtest.After, jobtest.Tasks

	epoch = time.UnixMilli(baseGen)
)

func clerkHello(id string) *slicerv1.Hello {
	return &slicerv1.Hello{Job: testJob, Role: slicerv1.Role_ROLE_CLERK, ClientId: id}
}

func sliceletHello(task string, incarnation uint64) *slicerv1.Hello {
	return &slicerv1.Hello{
		Job: testJob, Role: slicerv1.Role_ROLE_SLICELET, ClientId: "c-" + task,
		Task: &slicerv1.Task{
			Name: task, Incarnation: incarnation, Address: "10.1.1.1:80", Weight: 1,
			State: slicerv1.TaskState_TASK_STATE_RUNNING,
		},
		Report: &slicerv1.Report{Sequence: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING},
	}
}

// holding has a hello say that it holds a.
func holding(h *slicerv1.Hello, a *assignment.Assignment) *slicerv1.Hello {
	h.Generation, h.StoreId, h.Checksum = int64(a.Generation()), a.StoreID(), a.Checksum()
	return h
}
