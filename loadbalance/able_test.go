package loadbalance_test

import (
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// slowed is a job balanced by CPU, one of whose tasks can do less than the others from
// some round on. Of what it is asked for besides it carries nothing.
type slowed struct {
	a    *assignment.Assignment
	out  loadbalance.Output
	able float64 // what each can carry
	keys []keyLoad
}

// round lets task 3 be able to do a share of what others can, and returns how much it is
// asked for by the load of the mean task.
func (s *slowed) round(t *testing.T, tasks []assignment.Task, share float64) float64 {
	t.Helper()
	cfg := config(1, 10)
	cfg.LoadMetric = assignment.LoadCPU
	in := loadbalance.Input{Prev: s.a, Tasks: tasks, Config: cfg, State: s.out.State}
	if s.a != nil {
		l := measure(s.a, s.keys)
		in.Loads, in.Elapsed = l, cfg.Balance.Interval
		carries := make([]float64, len(tasks))
		for i, x := range l.Task {
			able := s.able
			if i == 3 {
				able *= share
			}
			carries[i] = min(able/x, 1)
			l.Task[i] *= carries[i]
			l.CPU = append(l.CPU, min(x/able, 1))
		}
		for i := range l.Slice {
			r, sum := s.a.Replicas(i), 0.0
			for j := range r.Len() {
				sum += carries[r.Position(j)]
			}
			l.Slice[i] *= sum / float64(r.Len())
		}
	}
	s.out = loadbalance.Rebalance(in)
	s.a = follow(t, s.a, tasks, s.out)
	return measure(s.a, s.keys).Task[3] * float64(len(tasks)) / 1000
}

// TestSlowTask has a task that can do half as much as is declared asked for no more than
// it can do, and for its share again once it can do that.
func TestSlowTask(t *testing.T) {
	tasks := fleet(10)
	s := &slowed{keys: zipf(2000, .8, 1000), able: 100 / .66}
	for range 40 {
		s.round(t, tasks, 1)
	}
	for i := range 24 {
		demand := s.round(t, tasks, .5)
		if t.Logf("round %d: %.3f of the mean task", i, demand); demand > 1.03 || i >= 6 && demand > .95*.5/.66 {
			t.Errorf("a task that is full is asked for %.3f of the mean task's load", demand)
		}
	}
	demand := 0.0
	for range 12 {
		demand = s.round(t, tasks, 1)
	}
	if demand < .95 {
		t.Errorf("a task that is as fast as the others again is asked for %.3f of the mean task's load", demand)
	}
}

// TestAllFull has tasks that are all full go on being balanced, as far as what they
// cannot carry leaves to be seen: none is slower.
func TestAllFull(t *testing.T) {
	tasks := fleet(10)
	s := &slowed{keys: zipf(2000, .8, 1000), able: 100 / .95}
	for range 40 {
		s.round(t, tasks, 1)
	}
	if x := imbalance(s.a, s.keys); x > 1.06 {
		t.Errorf("imbalance is %.3f", x)
	}
}
