package fanout

import (
	"time"

	"github.com/slicer-project/slicer/distributor/internal/jobtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	testJob   = jobtest.Job
	testStore = jobtest.Store
	baseGen   = jobtest.Generation
)

var (
	firstOf, after = jobtest.First, jobtest.After

	clerkHello, sliceletHello = jobtest.ClerkHello, jobtest.SliceletHello

	epoch = time.UnixMilli(baseGen)
)

func running(sequence uint64) *slicerv1.Report {
	return &slicerv1.Report{Sequence: sequence, State: slicerv1.TaskState_TASK_STATE_RUNNING}
}
