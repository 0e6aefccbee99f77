package loadbalance_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// fleet makes n running tasks of weight 1.
func fleet(n int) []assignment.Task {
	tasks := make([]assignment.Task, n)
	for i := range tasks {
		tasks[i] = assignment.Task{
			Name: fmt.Sprintf("t%d", i), Incarnation: 1, Address: fmt.Sprintf("h%d:1", i),
			Index: uint32(i), Weight: 1, State: assignment.TaskRunning,
		}
	}
	return tasks
}

func config(minReplicas, maxReplicas int) assignment.JobConfig {
	return assignment.JobConfig{Name: "job", MinReplicas: minReplicas, MaxReplicas: maxReplicas}.WithDefaults()
}

// TB is what testing.T and rapid.T have in common.
type TB interface {
	Helper()
	Fatalf(string, ...any)
}

// follow builds the assignment that a round decided; prev stays if it decided nothing.
func follow(t TB, prev *assignment.Assignment, tasks []assignment.Task, out loadbalance.Output) *assignment.Assignment {
	t.Helper()
	if len(out.Placement.Starts) == 0 {
		return prev
	}
	gen := assignment.Generation(1)
	if prev != nil {
		gen = prev.Generation() + 1
	}
	a, err := assignment.Successor(prev, assignment.Header{Job: "job", Generation: gen}, append([]assignment.Task(nil), tasks...), out.Placement)
	if err != nil {
		t.Fatalf("the decision makes no valid assignment: %v", err)
	}
	return a
}

// keyLoad is a key and its rate.
type keyLoad struct {
	key  assignment.SliceKey
	rate float64
}

// measure says exactly what keys load the slices of a with.
func measure(a *assignment.Assignment, keys []keyLoad) *loadbalance.Loads {
	l := &loadbalance.Loads{Slice: make([]float64, a.NumSlices()), Task: make([]float64, a.NumTasks())}
	for _, k := range keys {
		i := a.Find(k.key)
		l.Slice[i] += k.rate
		r := a.Replicas(i)
		for j := range r.Len() {
			l.Task[r.Position(j)] += k.rate / float64(r.Len())
		}
	}
	return l
}

// imbalance is max over mean of the tasks' true load by weight.
func imbalance(a *assignment.Assignment, keys []keyLoad) float64 {
	l := measure(a, keys)
	top, sum, weight := 0.0, 0.0, 0.0
	for i, t := range a.Tasks() {
		if t.State == assignment.TaskRunning {
			top = max(top, l.Task[i]/t.Weight)
			weight += t.Weight
		}
		sum += l.Task[i]
	}
	return top * weight / sum
}

func zipf(n int, s, total float64) []keyLoad {
	keys := make([]keyLoad, n)
	sum := 0.0
	for i := range keys {
		keys[i] = keyLoad{assignment.KeyOf(fmt.Sprint("key", i)), math.Pow(float64(i+1), -s)}
		sum += keys[i].rate
	}
	for i := range keys {
		keys[i].rate *= total / sum
	}
	return keys
}

// run plays rounds of exact measurements and returns the last assignment.
func run(t TB, cfg assignment.JobConfig, tasks []assignment.Task, keys []keyLoad, rounds int) *assignment.Assignment {
	t.Helper()
	return runBy(t, false, cfg, tasks, keys, rounds)
}

// runBy is run by either algorithm.
func runBy(t TB, published bool, cfg assignment.JobConfig, tasks []assignment.Task, keys []keyLoad, rounds int) *assignment.Assignment {
	t.Helper()
	out := loadbalance.Rebalance(loadbalance.Input{Tasks: tasks, Config: cfg, Published: published})
	a := follow(t, nil, tasks, out)
	for range rounds {
		out = loadbalance.Rebalance(loadbalance.Input{
			Prev: a, Tasks: tasks, Config: cfg, Published: published, Loads: measure(a, keys), Elapsed: cfg.Balance.Interval, State: out.State,
		})
		a = follow(t, a, tasks, out)
	}
	return a
}

func algorithms(t *testing.T, f func(t *testing.T, published bool)) {
	t.Run("published", func(t *testing.T) { f(t, true) })
	t.Run("weighted-move", func(t *testing.T) { f(t, false) })
}

const minute = time.Minute
