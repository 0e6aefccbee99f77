package generate

import (
	"fmt"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// BenchmarkReports is one second of a job of 10,000 tasks with 100 slices each
// that report through 10 Distributors, rounds apart. Below 1 s an op it keeps up
// on one core.
func BenchmarkReports(b *testing.B) {
	const tasks, sessions, slices = 10_000, 10, 100
	c := New(Config{ID: "me"}, "job", at(0))
	c.Next(at(0))
	cfg := assignment.JobConfig{Name: "job"}.WithDefaults()
	c.Loaded(at(0), Loaded{Exists: true, Job: store.Job{Config: cfg, Version: 1}, StoreID: 7})
	c.Preferred(at(0), "me")
	batches := make([][]Report, sessions)
	for s := range sessions {
		c.Attach(at(0), membership.Session(s+1), fmt.Sprint("d", s))
		for i := range tasks / sessions {
			l := &assignment.Load{Window: time.Second, Parts: 8, Generation: 1}
			for k := range slices {
				l.Ranges = append(l.Ranges, assignment.Slice{Start: assignment.SliceKey(k), End: assignment.SliceKey(k + 1)})
			}
			l.Rate, l.PartRate = make([]float64, slices), make([]float64, 8*slices)
			batches[s] = append(batches[s], Report{Load: l, Report: membership.Report{Said: true, State: assignment.TaskRunning,
				Task: assignment.Task{Name: fmt.Sprintf("task-%d-%d", s, i), Incarnation: 1, Address: "x:1", Weight: 1}}})
		}
	}
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		for s := range batches {
			now += time.Second / sessions
			for i := range batches[s] {
				batches[s][i].Sequence++
			}
			c.Reports(at(now), membership.Session(s+1), s == 0, batches[s])
			if a, ok := func() (*Plan, bool) { a, _ := c.Next(at(now)); p, ok := a.(*Plan); return p, ok }(); ok {
				c.Planned(at(now), &Planned{Plan: a}) // a round that changes nothing
			}
			c.Outputs()
		}
	}
}
