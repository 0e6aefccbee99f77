package loadbalance_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// alike are n tasks of one kind.
func alike(n int, weight, utilization float64) []loadbalance.Use {
	tasks := make([]loadbalance.Use, n)
	for i := range tasks {
		tasks[i] = loadbalance.Use{Weight: weight, Utilization: utilization, Serves: true}
	}
	return tasks
}

func TestWantedTasks(t *testing.T) {
	drains := append(alike(4, 1, .3), loadbalance.Use{Weight: 1, Utilization: .6})
	unknown := append(alike(4, 1, .6), alike(2, 1, 0)...)
	mixed := append(alike(2, 1, .9), alike(1, 4, .3)...)
	for _, c := range []struct {
		name   string
		tasks  []loadbalance.Use
		target float64
		least  int
		want   int
	}{
		{"none", nil, .6, 1, 0},
		{"as many as there are", alike(5, 1, .6), .6, 1, 5},
		{"weights alone change nothing", alike(5, 3, .6), .6, 1, 5},
		{"twice as many", alike(5, 1, .6), .3, 1, 10},
		{"a little more", alike(10, 1, .61), .6, 1, 11},
		{"fewer", alike(10, 1, .06), .6, 1, 1},
		{"replicas", alike(10, 1, .06), .6, 3, 3},
		{"nothing known", alike(10, 1, 0), .6, 3, 0},
		{"what drains comes to the others", drains, .6, 1, 3},
		{"the unknown are like the others", unknown, .6, 1, 6},
		{"one that starts carries nothing", append(alike(4, 1, .6), loadbalance.Use{Weight: 1}), .6, 1, 4},
		{"large and small: 3 of 6 used, of a mean of 2", mixed, .5, 1, 3},
		{"none serves", []loadbalance.Use{{Weight: 1, Utilization: .6}}, .6, 1, 0},
		{"no target", alike(3, 1, .6), 0, 1, 0},
		{"not a number", alike(3, 1, .6), math.NaN(), 1, 0},
		{"the most that there may be", alike(assignment.MaxTasks, 1, 1), .05, 1, assignment.MaxTasks},
	} {
		if got := loadbalance.WantedTasks(c.tasks, c.target, c.least); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// With as many tasks of the mean capacity the mean utilization is at most the target, and with
// one task less it is above.
func TestWantedTasksIsTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tasks := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) loadbalance.Use {
			return loadbalance.Use{Weight: rapid.Float64Range(.1, 10).Draw(t, "weight"), Utilization: rapid.Float64Range(.001, 1).Draw(t, "utilization"), Serves: true}
		}), 1, 50).Draw(t, "tasks")
		target := rapid.Float64Range(.05, 1).Draw(t, "target")
		var used, weight float64
		for _, x := range tasks {
			used += x.Weight * x.Utilization
			weight += x.Weight
		}
		n := float64(loadbalance.WantedTasks(tasks, target, 1))
		mean := weight / float64(len(tasks))
		if at := used / (n * mean); at > target+1e-4 {
			t.Fatalf("%v tasks are used to %v, target %v", n, at, target)
		}
		if n > 1 {
			if at := used / ((n - 1) * mean); at <= target-1e-4 {
				t.Fatalf("%v tasks, when one less is used to %v, target %v", n, at, target)
			}
		}
		more := loadbalance.WantedTasks(tasks, target/2, 1)
		if float64(more) < n {
			t.Fatalf("%d for half of the target, %v for all of it", more, n)
		}
	})
}
