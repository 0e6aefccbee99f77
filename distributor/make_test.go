package distributor

import (
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

	clerkHello, sliceletHello = jobtest.ClerkHello, jobtest.SliceletHello
)

// holding has a hello say that it holds a.
func holding(h *slicerv1.Hello, a *assignment.Assignment) *slicerv1.Hello {
	h.Generation, h.StoreId, h.Checksum = int64(a.Generation()), a.StoreID(), a.Checksum()
	return h
}
