// Package uneven says when a job's load counts as uneven, for all that shows how jobs are.
package uneven

import (
	"slices"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Above is how many times its floor, the least that there could be, the imbalance of a job is
// at most that is not called hot, as in the alert SlicerUneven.
const Above = 1.5

// Measurable reports whether there is so much load that its being uneven is no chance: a
// request a second for each task that serves, or where CPU is balanced a task that is as busy
// as the balancer wants it to be before it moves anything. Of an application's own units it is
// not known. Metric is what the job balances; load is all of it, in units a second.
func Measurable(m *slicerv1.InspectJobResponse, metric string, load float64, serving int) bool {
	switch metric {
	case assignment.LoadRequests:
		return load >= float64(serving)
	case assignment.LoadCPU:
		return slices.ContainsFunc(m.GetTasks(), func(t *slicerv1.TaskStatus) bool {
			return t.GetCpuUtilization() >= m.GetJob().GetConfig().GetBalance().GetCpuThreshold()
		})
	}
	return true
}
