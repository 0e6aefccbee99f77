package sim

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
	"github.com/slicer-project/slicer/loadbalance/baseline"
)

// The algorithm that jobs are balanced by, and the paper's to the letter.
const (
	WeightedMove = "weighted-move"
	Published    = "published"
)

// Algorithms are the names of what a source can be replayed through.
var Algorithms = []string{WeightedMove, Published, "static", "consistent-hash", "bounded-load", "load-aware"}

// decision is what an algorithm gets to see.
type decision struct {
	job   assignment.JobConfig
	tasks []assignment.Task
	ages  []time.Duration        // of the tasks, nil if all are old
	prev  *assignment.Assignment // nil in the first round
	loads *loadbalance.Loads
	// elapsed is the time since the window before began: windows without traffic are
	// left out.
	elapsed time.Duration
	// membership says that only the tasks have changed: there are no loads.
	membership bool
}

// decider makes one decision after another; an empty placement changes nothing.
type decider func(decision) (assignment.Placement, []loadbalance.Decision)

func newDecider(algorithm string) decider {
	switch algorithm {
	case "static":
		return compare(baseline.Static{})
	case "consistent-hash":
		return compare(baseline.ConsistentHash{})
	case "bounded-load":
		return compare(baseline.BoundedLoad{})
	case "load-aware":
		return compare(&baseline.LoadAware{})
	}
	var state *loadbalance.State
	return func(d decision) (assignment.Placement, []loadbalance.Decision) {
		out := loadbalance.Rebalance(loadbalance.Input{
			Prev: d.prev, Tasks: d.tasks, Ages: d.ages, MembershipOnly: d.membership, Config: d.job, Loads: d.loads, Elapsed: d.elapsed, State: state,
			Published: algorithm == Published,
		})
		state = out.State
		if !out.Changed {
			return assignment.Placement{}, nil
		}
		return out.Placement, out.Decisions
	}
}

func compare(a baseline.Algorithm) decider {
	return func(d decision) (assignment.Placement, []loadbalance.Decision) {
		return a.Next(baseline.Round{Tasks: d.tasks, Prev: d.prev, Loads: d.loads, MaxReplicas: d.job.MaxReplicas}), nil
	}
}
