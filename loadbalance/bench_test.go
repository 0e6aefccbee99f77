package loadbalance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/cputest"
	"github.com/slicer-project/slicer/loadbalance"
)

// uneven is a job of n tasks with 100 slices each, dealt out at random, whose
// loads have a heavy tail: a round on it has as much to do as the budgets allow.
func uneven(tb testing.TB, n int) (*assignment.Assignment, []assignment.Task, *loadbalance.Loads) {
	tb.Helper()
	tasks := fleet(n)
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	p := assignment.Placement{Starts: assignment.Equal(100 * n)}
	l := &loadbalance.Loads{Task: make([]float64, n)}
	for range p.Starts {
		p.Owners = append(p.Owners, uint32(rng.IntN(n)))
		l.Slice = append(l.Slice, math.Exp(rng.NormFloat64()))
	}
	a, err := assignment.Successor(nil, assignment.Header{Job: "job", Generation: 1}, tasks, p)
	if err != nil {
		tb.Fatal(err)
	}
	return a, fleet(n), l
}

// BenchmarkRound is one round with everything to do, by number of tasks at 100
// slices each.
func BenchmarkRound(b *testing.B) {
	for _, alg := range []string{"weighted-move", "published"} {
		for _, n := range []int{100, 300, 1000, 3000, 10000} {
			b.Run(fmt.Sprintf("%s/tasks=%d", alg, n), func(b *testing.B) {
				a, tasks, l := uneven(b, n)
				in := loadbalance.Input{Prev: a, Tasks: tasks, Config: config(1, 10), Published: alg == "published", Loads: l, Elapsed: time.Minute}
				moves := 0
				began, rounds := cputest.Own(), 0
				for b.Loop() {
					moves = len(loadbalance.Rebalance(in).Decisions)
					rounds++
				}
				b.ReportMetric((cputest.Own()-began).Seconds()*1000/float64(rounds), "cpu-ms/op")
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(moves), "decisions")
				b.ReportMetric(float64(m.Sys)/1e6, "MB")
			})
		}
	}
}

// BenchmarkMembership is the round that gives a dead task's slices to others.
func BenchmarkMembership(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("tasks=%d", n), func(b *testing.B) {
			a, tasks, l := uneven(b, n)
			tasks[n/2].State = assignment.TaskDead
			in := loadbalance.Input{Prev: a, Tasks: tasks, Config: config(1, 10), Loads: l, MembershipOnly: true}
			for b.Loop() {
				loadbalance.Rebalance(in)
			}
		})
	}
}

// BenchmarkMeasure maps the reports of all tasks, in 8 parts a slice.
func BenchmarkMeasure(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("tasks=%d", n), func(b *testing.B) {
			a, _, l := uneven(b, n)
			reports := make([]loadbalance.Report, n)
			for t := range reports {
				reports[t] = loadbalance.Report{Task: fmt.Sprint("t", t), Incarnation: 1}
				reports[t].Load.Generation, reports[t].Load.Parts = 1, 8
			}
			for i := range a.NumSlices() {
				r := &reports[a.Replicas(i).Position(0)].Load
				r.Ranges, r.Rate = append(r.Ranges, a.Slice(i)), append(r.Rate, l.Slice[i])
				for range 8 {
					r.PartRate = append(r.PartRate, l.Slice[i]/8)
				}
			}
			for b.Loop() {
				loadbalance.Measure(a, reports)
			}
		})
	}
}
