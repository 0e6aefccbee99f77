package assigner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/loadbalance"
)

// TestExplainMerges merges slices with two owners: a task that is given a key is named by
// the generation that did it, and no other is.
func TestExplainMerges(t *testing.T) {
	cfg := assignment.JobConfig{Name: "job", MinReplicas: 2, MaxReplicas: 3, Balance: assignment.BalanceConfig{
		MinSlicesPerTask: 20}}.WithDefaults()
	var tasks []assignment.Task
	for i := range 5 {
		tasks = append(tasks, assignment.Task{Name: fmt.Sprint("t", i), Incarnation: 1, Address: "x:1", Index: uint32(i), Weight: 1, State: assignment.TaskRunning})
	}
	var a *assignment.Assignment
	var history []store.Entry
	var state *loadbalance.State
	merged := 0
	for round := range 12 {
		in := loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Published: true, State: state, Elapsed: cfg.Balance.Interval}
		if a != nil {
			in.Loads = &loadbalance.Loads{Slice: make([]float64, a.NumSlices())}
			for i := range in.Loads.Slice {
				in.Loads.Slice[i] = 1 + float64((i*7919+round*13)%17)
			}
		}
		out := loadbalance.Rebalance(in)
		state = out.State
		g := assignment.Generation(round + 1)
		next, err := assignment.Successor(a, assignment.Header{Job: "job", Generation: g}, slices.Clone(tasks), out.Placement)
		if err != nil {
			t.Fatal(err)
		}
		e := store.Entry{Generation: g, Stamp: store.Stamp{When: time.UnixMilli(int64(g)), Why: "load"}}
		for _, d := range out.Decisions {
			if d.Kind == loadbalance.KindMerge && d.Reason == loadbalance.ReasonCold {
				merged++
			}
			e.Decisions = append(e.Decisions, store.Decision{Kind: string(d.Kind), Reason: string(d.Reason), Slice: d.Slice, From: d.From, To: d.To})
		}
		history = append(history, e)
		for i := range 400 {
			k := assignment.SliceKey(uint64(i) * uint64(assignment.KeyspaceEnd) / 400)
			for _, o := range explain(next, history, k).Owners {
				had := false
				if a != nil {
					for p := range a.Lookup(k).All() {
						had = had || p.Name == o.Task
					}
				}
				if (o.Given == int64(g)) == had {
					t.Fatalf("generation %d, key %s: %s owns it, had it before: %v, and was given it by %d, %q", g, k, o.Task, had, o.Given, o.Unknown)
				}
			}
		}
		a, cfg.Balance.MinSlicesPerTask = next, 10
	}
	if merged == 0 {
		t.Fatal("nothing was merged")
	}
}
