package lease

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// quarters is an assignment of four equal slices to two tasks, by position.
func quarters(t *testing.T, g assignment.Generation, owners ...uint32) *assignment.Assignment {
	t.Helper()
	tasks := []assignment.Task{
		{Name: "a", Incarnation: 1, Address: "127.0.0.1:1", Index: 0, Weight: 1, State: assignment.TaskRunning},
		{Name: "b", Incarnation: 2, Address: "127.0.0.1:2", Index: 1, Weight: 1, State: assignment.TaskRunning},
	}
	c := assignment.Columns{Owners: owners}
	for i := range assignment.SliceKey(4) {
		c.Starts = append(c.Starts, i*(assignment.KeyspaceEnd/4))
	}
	a, err := assignment.New(assignment.Header{Job: "job", StoreID: 1, Generation: g, Previous: g - 1}, tasks, c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Under the guard a task owns what is its own in one assignment, under the bridge
// what is its own in both.
func TestBeliefIsInBothSidesOfTheBridge(t *testing.T) {
	valid := &term{clock: func() time.Duration { return 0 }}
	valid.deadline.Store(math.MaxInt64)
	from, to := quarters(t, 1, 0, 0, 1, 1), quarters(t, 2, 0, 1, 0, 1)
	for _, c := range []struct {
		what          string
		before, after *assignment.Assignment
		want          []bool // by quarter
	}{
		{"under the guard", from, nil, []bool{true, true, false, false}},
		{"under the bridge", from, to, []bool{true, false, false, false}},
	} {
		b := &Belief{term: valid, before: see(c.before, "a", 1)}
		if c.after != nil {
			b.after = see(c.after, "a", 1)
		}
		for q, want := range c.want {
			k := assignment.SliceKey(q)*(assignment.KeyspaceEnd/4) + 1
			in := slices.ContainsFunc(b.Slices(), func(s assignment.Slice) bool { return s.Contains(k) })
			if b.Owns(k) != want || in != want {
				t.Errorf("%s: quarter %d is owned: %t, and in the slices: %t; want %t", c.what, q, b.Owns(k), in, want)
			}
		}
	}
}
