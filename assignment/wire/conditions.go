package wire

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// MaxConditions is how many tasks' conditions are told at most.
const MaxConditions = 100

// ConditionOf is what a task's report says that its clients need to know, nil if nothing.
func ConditionOf(t *slicerv1.Task, r *slicerv1.Report) *slicerv1.TaskCondition {
	draining := cmp.Or(r.GetState(), t.GetState()) == slicerv1.TaskState_TASK_STATE_DRAINING
	if !draining && r.GetLevel() == 0 {
		return nil
	}
	return &slicerv1.TaskCondition{Task: t.GetName(), Incarnation: t.GetIncarnation(), Draining: draining, Level: r.GetLevel(), PauseMs: r.GetPauseMs()}
}

// WithoutLevel is what a condition says besides its level, nil if nothing. c stays as it is.
func WithoutLevel(c *slicerv1.TaskCondition) *slicerv1.TaskCondition {
	if !c.GetDraining() {
		return nil
	}
	return &slicerv1.TaskCondition{Task: c.GetTask(), Incarnation: c.GetIncarnation(), Draining: true}
}

// WorstConditions are at most MaxConditions of all, which are in any order and may be changed,
// in order of name: those of tasks that drain, and then of those that refuse most.
func WorstConditions(all []*slicerv1.TaskCondition) []*slicerv1.TaskCondition {
	slices.SortFunc(all, func(a, b *slicerv1.TaskCondition) int {
		if a.Draining != b.Draining {
			if a.Draining {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Level, a.Level), cmp.Compare(a.Task, b.Task))
	})
	all = slices.Clip(all[:min(len(all), MaxConditions)])
	slices.SortFunc(all, func(a, b *slicerv1.TaskCondition) int { return cmp.Compare(a.Task, b.Task) })
	return all
}

// SameConditions reports whether two lists say the same.
func SameConditions(a, b []*slicerv1.TaskCondition) bool {
	if len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) {
		return true
	}
	return slices.EqualFunc(a, b, func(x, y *slicerv1.TaskCondition) bool { return proto.Equal(x, y) })
}
