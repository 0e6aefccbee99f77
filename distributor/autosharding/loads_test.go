package autosharding

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
)

// Whatever clients report, and however the assignment changes in between, all that
// falls on slice keys is handed out once.
func TestLoadsLoseNothing(t *testing.T) {
	seed := seedtest.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		now := time.Unix(1000, 0)
		a := makeAssignment(t, baseGen, 1+rnd.IntN(5), 1+rnd.IntN(30), true)
		names := make(map[string]bool)
		var l Loads
		in, out := 0.0, 0.0
		take := func(task string) {
			if got := l.Take(now, a, task); got != nil {
				sum := 0.0
				for i, r := range got.Rate {
					sum += r
					if !a.Replicas(a.Find(got.Ranges[i].Start)).Has(position(t, a, task)) {
						t.Fatalf("%s has load of %s, which it does not own", task, got.Ranges[i])
					}
				}
				if math.Abs(sum-got.Total) > 1e-6*sum || got.Generation != a.Generation() {
					t.Fatalf("%v in all, the sum is %v; generation %d", got.Total, sum, got.Generation)
				}
				out += sum * got.Window.Seconds()
			}
		}
		for range 30 {
			now = now.Add(time.Duration(1 + rnd.IntN(1e9)))
			switch rnd.IntN(4) {
			case 0:
				a = makeAssignment(t, a.Generation()+1, 1+rnd.IntN(5), 1+rnd.IntN(30), true)
			case 1:
				take(a.Task(rnd.IntN(a.NumTasks())).Name)
			default:
				r := &Report{Window: time.Second}
				for range 1 + rnd.IntN(10) {
					r.Starts = append(r.Starts, assignment.SliceKey(rnd.Uint64N(uint64(assignment.KeyspaceEnd))))
				}
				slices.Sort(r.Starts)
				r.Starts = slices.Compact(r.Starts)
				for range r.Starts {
					x := float64(rnd.IntN(100))
					r.Amount = append(r.Amount, x)
					in += x
				}
				l.Add(now, a, r)
			}
			for _, task := range a.Tasks() {
				names[task.Name] = true
			}
		}
		now = now.Add(time.Second)
		for name := range names {
			take(name)
		}
		if math.Abs(in-out) > 1e-6*in {
			t.Fatalf("%v came in, %v went out", in, out)
		}
	}
}

func position(t *testing.T, a *assignment.Assignment, task string) int {
	pos, ok := a.Position(task)
	if !ok {
		t.Fatalf("no task %s", task)
	}
	return pos
}

func TestLoadsAreRates(t *testing.T) {
	a := makeAssignment(t, baseGen, 1, 2, false)
	now := time.Unix(1000, 0)
	var l Loads
	if l.Take(now, a, "web-0") != nil {
		t.Error("there is load, and no client has reported any")
	}
	half := assignment.KeyspaceEnd / 2
	l.Add(now, a, &Report{Window: time.Second, Starts: []assignment.SliceKey{half, half + half/2}, Amount: []float64{30, 10}})
	got := l.Take(now.Add(4*time.Second), a, "web-0")
	if got == nil || got.Window != 4*time.Second || !slices.Equal(got.Rate, []float64{0, 10}) || got.Total != 10 || got.Parts != 1 {
		t.Errorf("got %+v, want 40 over 4 s on the second slice", got)
	}
	if got := l.Take(now.Add(5*time.Second), a, "web-0"); got != nil {
		t.Errorf("got %+v a second time", got)
	}
	if got := l.Take(now.Add(5*time.Second), a, "web-9"); got != nil {
		t.Errorf("got %+v for a task that is not there", got)
	}
	l.Add(now, a, &Report{Window: time.Second, Starts: []assignment.SliceKey{assignment.KeyspaceEnd, assignment.KeyspaceEnd}, Amount: []float64{30, 10}})
	if got := l.Take(now.Add(6*time.Second), a, "web-0"); got != nil {
		t.Errorf("got %+v of keys that are no slice keys", got)
	}
	l.Add(now, a, &Report{Window: time.Second, Starts: []assignment.SliceKey{0}, Amount: []float64{6}})
	if got := l.Take(now.Add(8*time.Second), a, "web-0"); got == nil || got.Window != 2*time.Second || got.Total != 3 {
		t.Errorf("got %+v, want 6 over the 2 s since the last was taken", got)
	}
}
