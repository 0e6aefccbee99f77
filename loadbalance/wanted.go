package loadbalance

import (
	"math"

	"github.com/slicer-project/slicer/assignment"
)

// Use is how much one living task is used.
type Use struct {
	// Weight is its capacity compared with others'.
	Weight float64
	// Utilization is its CPU as a share of what it may use, 0 to 1; 0 when not known.
	Utilization float64
	// Serves: it may own slices. What others carry will come to those that serve.
	Serves bool
}

// WantedTasks is how many tasks of the mean capacity of those that serve would be used to the
// target, a share above 0, by what all tasks carry now: at least as many as a slice has
// replicas, least. One that serves and whose utilization is not known is taken to be used like the others.
// It is 0 when none is known, or none serves.
//
// It is the rule of Kubernetes' HorizontalPodAutoscaler, ceil(tasks x utilization / target),
// with capacities, so that tasks of different size count for what they are.
func WantedTasks(tasks []Use, target float64, least int) int {
	var used, known, weight float64 // used: of the tasks of which it is known, as weight known
	var all float64
	serving := 0
	for _, t := range tasks {
		if t.Serves || t.Utilization > 0 {
			all += t.Weight
		}
		if t.Utilization > 0 {
			used += t.Weight * t.Utilization
			known += t.Weight
		}
		if t.Serves {
			weight += t.Weight
			serving++
		}
	}
	if known <= 0 || weight <= 0 || !(target > 0) {
		return 0
	}
	used *= all / known
	// Sums of products are off by some last bits, which are no reason for one more task.
	n := math.Ceil(used/target/(weight/float64(serving)) - 1e-6)
	return int(min(max(n, float64(least), 1), assignment.MaxTasks))
}
