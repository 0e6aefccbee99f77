package sim

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// A move is one change of an owner of a piece of the keyspace, whatever decided it.
func TestMoves(t *testing.T) {
	const half = assignment.SliceKey(1 << 62)
	tasks := makeTasks(4)
	place := func(starts []assignment.SliceKey, owners ...[]uint32) *assignment.Assignment {
		var p assignment.Placement
		for i, start := range starts {
			p.Add(start, owners[i]...)
		}
		a, err := assignment.Successor(nil, assignment.Header{Job: "simulation", Generation: 1}, tasks, p)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	one, two := []assignment.SliceKey{0}, []assignment.SliceKey{0, half}
	for _, c := range []struct {
		name          string
		before, after *assignment.Assignment
		moves         int
		keys          float64
	}{
		{"nothing", place(one, []uint32{0}), place(one, []uint32{0}), 0, 0},
		{"split", place(one, []uint32{0}), place(two, []uint32{0}, []uint32{0}), 0, 0},
		{"moved", place(one, []uint32{0}), place(one, []uint32{1}), 1, 1},
		{"replicated twice", place(one, []uint32{0}), place(one, []uint32{0, 1, 2}), 2, 1},
		{"removed", place(one, []uint32{0, 1}), place(one, []uint32{0}), 1, 0},
		{"one replica moved", place(one, []uint32{0, 1}), place(one, []uint32{0, 2}), 1, 1},
		{"moved and replicated", place(one, []uint32{0, 1}), place(one, []uint32{1, 2, 3}), 2, 1},
		{"half moved", place(one, []uint32{0}), place(two, []uint32{0}, []uint32{1}), 1, .5},
		{"merged", place(two, []uint32{0}, []uint32{1}), place(one, []uint32{0}), 1, .5},
		{"one came, one went elsewhere", place(two, []uint32{0, 1}, []uint32{2}), place(two, []uint32{0}, []uint32{2, 3}), 2, .5},
	} {
		var v windowLoads
		v.look(Window{})
		if keys, _, moves := v.churn(c.before, c.after); keys != c.keys || moves != c.moves {
			t.Errorf("%s: key churn %g, %d moves, want %g and %d", c.name, keys, moves, c.keys, c.moves)
		}
	}
}

// listed is a source.
type listed []Window

func (l *listed) Next() (Window, error) {
	if len(*l) == 0 {
		return Window{}, io.EOF
	}
	w := (*l)[0]
	*l = (*l)[1:]
	return w, nil
}

// Windows without traffic are left out, but their time has passed.
func TestElapsed(t *testing.T) {
	job, err := (&Config{Algorithm: "static", Tasks: 2, IntervalMS: 1000}).job()
	if err != nil {
		t.Fatal(err)
	}
	r := &replay{c: Config{Tasks: 2}, job: job, tasks: makeTasks(2), meter: meter{parts: 8, seconds: 1}}
	var got []time.Duration
	static := newDecider("static")
	r.decide = func(d decision) (assignment.Placement, []loadbalance.Decision) {
		if d.prev != nil {
			got = append(got, d.elapsed)
		}
		return static(d)
	}
	w := func(ms int64) Window { return Window{StartMS: ms, Keys: []assignment.SliceKey{7}, Load: []float64{1}} }
	if _, err := r.play(&listed{w(5000), w(6000), w(16000), w(17000)}); err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{time.Second, time.Second, 10 * time.Second, time.Second}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
