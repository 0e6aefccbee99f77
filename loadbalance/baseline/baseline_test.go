package baseline_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
	"github.com/slicer-project/slicer/loadbalance/baseline"
)

func fleet(n int) []assignment.Task {
	tasks := make([]assignment.Task, n)
	for i := range tasks {
		tasks[i] = assignment.Task{
			Name: fmt.Sprint("t", i), Incarnation: 1, Address: "h:1", Index: uint32(i), Weight: 1, State: assignment.TaskRunning,
		}
	}
	return tasks
}

func build(t *testing.T, prev *assignment.Assignment, tasks []assignment.Task, p assignment.Placement) *assignment.Assignment {
	t.Helper()
	h := assignment.Header{Job: "job", Generation: 1}
	if prev != nil {
		h.Generation = prev.Generation() + 1
	}
	a, err := assignment.Successor(prev, h, append([]assignment.Task(nil), tasks...), p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// loads gives each slice the load of its width, and the slice of key hot some more.
func loads(a *assignment.Assignment, hot float64) *loadbalance.Loads {
	l := &loadbalance.Loads{Slice: make([]float64, a.NumSlices()), Task: make([]float64, a.NumTasks())}
	at := a.Find(assignment.KeyOf("hot"))
	for i := range l.Slice {
		l.Slice[i] = a.Slice(i).Fraction()
		if i == at {
			l.Slice[i] += hot
		}
		r := a.Replicas(i)
		for j := range r.Len() {
			l.Task[r.Position(j)] += l.Slice[i] / float64(r.Len())
		}
	}
	return l
}

// all is every algorithm, fresh.
func all() map[string]baseline.Algorithm {
	return map[string]baseline.Algorithm{
		"static": baseline.Static{}, "consistent hash": baseline.ConsistentHash{},
		"bounded load": baseline.BoundedLoad{}, "load-aware": &baseline.LoadAware{},
	}
}

func TestEveryAlgorithm(t *testing.T) {
	for name, alg := range all() {
		t.Run(name, func(t *testing.T) {
			tasks := fleet(12)
			tasks[3].State, tasks[4].State = assignment.TaskDead, assignment.TaskDraining
			r := baseline.Round{Tasks: tasks, MaxReplicas: 4}
			for range 5 {
				a := build(t, r.Prev, tasks, alg.Next(r))
				for s, replicas := range a.All() {
					for task := range replicas.All() {
						if task.State != assignment.TaskRunning {
							t.Fatalf("%v belongs to %s, which is %v", s, task.Name, task.State)
						}
					}
					if replicas.Len() > 4 {
						t.Fatalf("%v has %d replicas", s, replicas.Len())
					}
				}
				r.Prev, r.Loads = a, loads(a, 1)
			}
			if p := alg.Next(baseline.Round{Tasks: tasks[3:5]}); len(p.Starts) > 0 {
				t.Errorf("without a running task it placed %d slices", len(p.Starts))
			}
			build(t, nil, fleet(1), alg.Next(baseline.Round{Tasks: fleet(1), MaxReplicas: 4}))
		})
	}
}

func TestDeterministic(t *testing.T) {
	second := all()
	for name, alg := range all() {
		r := baseline.Round{Tasks: fleet(9), MaxReplicas: 3}
		for range 3 {
			p := alg.Next(r)
			if d := cmp.Diff(p, second[name].Next(r)); d != "" {
				t.Fatalf("%s: %s", name, d)
			}
			r.Prev = build(t, r.Prev, r.Tasks, p)
			r.Loads = loads(r.Prev, .5)
		}
	}
}

// TestConsistentHashMoves checks that one task fewer moves its own keys alone.
func TestConsistentHashMoves(t *testing.T) {
	before := build(t, nil, fleet(10), baseline.ConsistentHash{}.Next(baseline.Round{Tasks: fleet(10)}))
	after := build(t, nil, fleet(9), baseline.ConsistentHash{}.Next(baseline.Round{Tasks: fleet(9)}))
	for i := range 10_000 {
		k := assignment.KeyOf(fmt.Sprint(i))
		was, is := before.Lookup(k).At(0).Name, after.Lookup(k).At(0).Name
		if was != is && was != "t9" {
			t.Fatalf("key %d moved from %s to %s", i, was, is)
		}
	}
}

// TestBoundedLoad checks the bound wherever an arc is no larger than the slack.
func TestBoundedLoad(t *testing.T) {
	tasks := fleet(20)
	alg := baseline.BoundedLoad{}
	r := baseline.Round{Tasks: tasks, MaxReplicas: 10}
	for range 3 {
		r.Prev = build(t, r.Prev, tasks, alg.Next(r))
		r.Loads = loads(r.Prev, .2)
	}
	limit := 1.25 * 1.2 / 20
	for i, v := range r.Loads.Task {
		if v > limit*1.01 {
			t.Errorf("t%d carries %.4f, the limit is %.4f", i, v, limit)
		}
	}
}

// TestLoadAware checks that the hottest task gets cooler.
func TestLoadAware(t *testing.T) {
	tasks := fleet(10)
	alg := &baseline.LoadAware{}
	r := baseline.Round{Tasks: tasks, MaxReplicas: 1}
	var tops []float64
	for range 10 {
		r.Prev = build(t, r.Prev, tasks, alg.Next(r))
		r.Loads = loads(r.Prev, .05)
		top := 0.
		for _, v := range r.Loads.Task {
			top = max(top, v)
		}
		tops = append(tops, top)
	}
	if tops[9] >= tops[0] {
		t.Errorf("the hottest task went from %.3f to %.3f", tops[0], tops[9])
	}
}
