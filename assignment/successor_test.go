package assignment_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

// history is an oracle for since: it remembers, cell by cell, who owned what in
// every generation, and goes through all of it.
type history struct {
	cells       int
	generations []assignment.Generation
	owned       [][]map[string]bool // by generation, cell: name/incarnation
}

func owner(t assignment.Task) string { return fmt.Sprintf("%s/%d", t.Name, t.Incarnation) }

func (h *history) width() assignment.SliceKey {
	return assignment.KeyspaceEnd / assignment.SliceKey(h.cells)
}

func (h *history) record(a *assignment.Assignment) {
	cells := make([]map[string]bool, h.cells)
	for c := range cells {
		cells[c] = map[string]bool{}
		for t := range a.Lookup(assignment.SliceKey(c) * h.width()).All() {
			cells[c][owner(t)] = true
		}
	}
	h.generations, h.owned = append(h.generations, a.Generation()), append(h.owned, cells)
}

// since is the generation since which a task has owned a cell up to the newest.
func (h *history) since(cell int, who string) (g assignment.Generation) {
	for i := len(h.owned) - 1; i >= 0 && h.owned[i][cell][who]; i-- {
		g = h.generations[i]
	}
	return g
}

// TestSuccessorSince replays random histories on a small keyspace. What an
// assignment says of since is held against the whole history (an owner never
// seems older than it is) and against the rule (newest of the parts), applied
// cell by cell.
func TestSuccessorSince(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 5))
		w := &world{rng: rng, h: history{cells: 16}, said: map[string]assignment.Generation{}, tasks: newTasks(4)}
		for range 60 {
			w.step(t, seed)
		}
	}
}

type world struct {
	rng     *rand.Rand
	h       history
	tasks   []assignment.Task
	owners  [][]int // by cell: positions in tasks
	starts  []bool  // by cell: whether a slice begins here
	now     *assignment.Assignment
	said    map[string]assignment.Generation // cell and owner: since, as the rule has it
	horizon assignment.Generation
}

func (w *world) step(t *testing.T, seed uint64) {
	t.Helper()
	if w.owners == nil {
		w.owners, w.starts = make([][]int, w.h.cells), make([]bool, w.h.cells)
		for c := range w.owners {
			w.owners[c] = []int{w.rng.IntN(len(w.tasks))}
		}
	}
	for range w.rng.IntN(4) {
		c := w.rng.IntN(w.h.cells)
		switch w.rng.IntN(4) {
		case 0:
			w.owners[c] = []int{w.rng.IntN(len(w.tasks))}
		case 1:
			w.owners[c] = w.rng.Perm(len(w.tasks))[:2]
		case 2:
			w.starts[c] = !w.starts[c]
		case 3:
			w.tasks = slices.Clone(w.tasks)
			w.tasks[w.rng.IntN(len(w.tasks))].Incarnation += uint64(w.rng.IntN(2))
		}
	}
	// Cells of one slice have the owners of its first.
	var p assignment.Placement
	for c := range w.h.cells {
		if c > 0 && !w.starts[c] {
			w.owners[c] = w.owners[c-1]
			continue
		}
		var owners []uint32
		for _, o := range w.owners[c] {
			owners = append(owners, uint32(o))
		}
		p.Add(assignment.SliceKey(c)*w.h.width(), owners...)
	}
	h := assignment.Header{Job: "job", StoreID: 3, Generation: 10, Previous: 77, Horizon: 7}
	if w.now != nil {
		h.Generation = w.now.Generation() + assignment.Generation(1+w.rng.IntN(5))
	}
	a, err := assignment.Successor(w.now, h, slices.Clone(w.tasks), p)
	if err != nil {
		t.Fatal(err)
	}
	checkValid(t, a)
	if w.now != nil && a.Previous() != w.now.Generation() || w.now == nil && (a.Previous() != 0 || a.Header().Horizon != 0) {
		t.Fatalf("seed %d: header %+v after %v", seed, a.Header(), w.now)
	}
	if a.Header().Horizon < w.horizon {
		t.Fatalf("seed %d: horizon went back from %d to %d", seed, w.horizon, a.Header().Horizon)
	}
	w.horizon, w.now = a.Header().Horizon, a
	w.h.record(a)
	w.check(t, seed)
}

func (w *world) check(t *testing.T, seed uint64) {
	t.Helper()
	said := map[string]assignment.Generation{}
	distinct := map[assignment.Generation]bool{}
	for s, r := range w.now.All() {
		first, end := int(s.Start/w.h.width()), int(s.End/w.h.width())
		for i := range r.Len() {
			who := owner(r.At(i))
			var truth, rule assignment.Generation
			for c := first; c < end; c++ {
				truth = max(truth, w.h.since(c, who))
				last, held := w.said[fmt.Sprint(c, who)]
				if !held {
					last = w.now.Generation()
				}
				rule = max(rule, last)
			}
			got := r.Since(i)
			if got < truth {
				t.Fatalf("seed %d, generation %d, slice %s: %s is said to own since %d, it does since %d", seed, w.now.Generation(), s, who, got, truth)
			}
			if want := max(rule, w.horizon); got != want {
				t.Fatalf("seed %d, generation %d, slice %s: since of %s is %d, want %d", seed, w.now.Generation(), s, who, got, want)
			}
			for c := first; c < end; c++ {
				said[fmt.Sprint(c, who)] = rule
			}
			distinct[got] = true
		}
	}
	w.said = said
	if len(distinct) > 128 {
		t.Fatalf("seed %d: %d different generations", seed, len(distinct))
	}
}

// Many cells, each of which changes hands in a generation of its own, are more
// generations than an assignment tells apart: the horizon moves, no further than
// needed.
func TestSuccessorAdvancesHorizon(t *testing.T) {
	const cells = 160
	w := &world{rng: rand.New(rand.NewPCG(1, 6)), h: history{cells: cells}, said: map[string]assignment.Generation{}, tasks: newTasks(3)}
	w.owners, w.starts = make([][]int, cells), make([]bool, cells)
	for c := range w.owners {
		w.owners[c], w.starts[c] = []int{0}, true
	}
	moved := 0
	for i := range 300 {
		c := i * 7 % cells
		w.owners[c] = []int{(w.owners[c][0] + 1) % 3}
		before := w.horizon
		w.stepAsIs(t)
		if w.horizon == before {
			continue
		}
		moved++
		distinct := map[assignment.Generation]bool{}
		for _, r := range w.now.All() {
			distinct[r.Since(0)] = true
		}
		if len(distinct) != 128 { // the horizon itself and 127 after it
			t.Fatalf("horizon moved to %d with %d generations left", w.horizon, len(distinct))
		}
	}
	if moved < 100 {
		t.Errorf("the horizon moved %d times", moved)
	}
}

// stepAsIs makes the successor of the owners as they are.
func (w *world) stepAsIs(t *testing.T) {
	t.Helper()
	var p assignment.Placement
	for c, o := range w.owners {
		p.Starts = append(p.Starts, assignment.SliceKey(c)*w.h.width())
		p.Owners = append(p.Owners, uint32(o[0]))
	}
	h := assignment.Header{Job: "job", Generation: 1}
	if w.now != nil {
		h.Generation = w.now.Generation() + 1
	}
	a, err := assignment.Successor(w.now, h, slices.Clone(w.tasks), p)
	if err != nil {
		t.Fatal(err)
	}
	if a.Header().Horizon < w.horizon {
		t.Fatalf("horizon went back from %d to %d", w.horizon, a.Header().Horizon)
	}
	w.horizon, w.now = a.Header().Horizon, a
	w.h.record(a)
	w.check(t, 1)
}

func TestSuccessorCases(t *testing.T) {
	const half = assignment.KeyspaceEnd / 2
	header := func(g assignment.Generation) assignment.Header { return assignment.Header{Job: "job", Generation: g} }
	tasks := newTasks(3)
	next := func(prev *assignment.Assignment, g assignment.Generation, tasks []assignment.Task, p assignment.Placement) *assignment.Assignment {
		t.Helper()
		a, err := assignment.Successor(prev, header(g), tasks, p)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	halves := func(a, b uint32) assignment.Placement {
		return assignment.Placement{Starts: []assignment.SliceKey{0, half}, Owners: []uint32{a, b}}
	}
	whole := func(a uint32) assignment.Placement {
		return assignment.Placement{Starts: []assignment.SliceKey{0}, Owners: []uint32{a}}
	}
	one := next(nil, 1, tasks, halves(0, 1))
	two := next(one, 2, tasks, halves(0, 0))
	for _, tc := range []struct {
		name string
		a    *assignment.Assignment
		want []assignment.Generation
	}{
		{"first", one, []assignment.Generation{1, 1}},
		{"one half moved", two, []assignment.Generation{1, 2}},
		{"merge takes the newest", next(two, 3, tasks, whole(0)), []assignment.Generation{2}},
		{"split of a merge stays young", next(next(two, 3, tasks, whole(0)), 4, tasks, halves(0, 0)), []assignment.Generation{2, 2}},
		{"merge with what it did not own", next(one, 3, tasks, whole(0)), []assignment.Generation{3}},
		{"away and back", next(next(one, 2, tasks, halves(2, 1)), 3, tasks, halves(0, 1)), []assignment.Generation{3, 1}},
		{"new incarnation", next(two, 3, func() []assignment.Task {
			t := slices.Clone(tasks)
			t[0].Incarnation = 99
			return t
		}(), halves(0, 0)), []assignment.Generation{3, 3}},
		{"new address, weight and state", next(two, 3, func() []assignment.Task {
			t := slices.Clone(tasks)
			t[0].Address, t[0].Weight, t[0].State = "b:2", 2, assignment.TaskDraining
			return t
		}(), halves(0, 0)), []assignment.Generation{1, 2}},
		{"another index", next(two, 3, []assignment.Task{tasks[1], func() assignment.Task {
			t := tasks[0]
			t.Index = 17
			return t
		}()}, halves(1, 1)), []assignment.Generation{1, 2}},
		{"another name at the index", next(two, 3, func() []assignment.Task {
			t := slices.Clone(tasks)
			t[0].Name = "other"
			return t
		}(), halves(0, 0)), []assignment.Generation{3, 3}},
		{"placement with offsets that say nothing", next(two, 3, tasks, assignment.Placement{Starts: []assignment.SliceKey{0, half}, Offsets: []uint32{0, 1, 2}, Owners: []uint32{0, 0}}), []assignment.Generation{1, 2}},
	} {
		for i, want := range tc.want {
			if got := tc.a.Replicas(i).Since(0); got != want {
				t.Errorf("%s: slice %d since %d, want %d", tc.name, i, got, want)
			}
		}
	}

	for _, tc := range []struct {
		name string
		prev *assignment.Assignment
		h    assignment.Header
		p    assignment.Placement
		want string
	}{
		{"no placement", nil, header(1), assignment.Placement{}, "slices: 0"},
		{"same generation", one, header(1), halves(0, 1), "previous: 1"},
		{"older generation", two, header(1), halves(0, 1), "previous: 2"},
		{"another job", one, assignment.Header{Job: "other", Generation: 2}, halves(0, 1), "cannot follow"},
		{"another store", one, assignment.Header{Job: "job", StoreID: 9, Generation: 2}, halves(0, 1), "cannot follow"},
		{"a slice without owner, one with two", nil, header(1), assignment.Placement{Starts: []assignment.SliceKey{0, half}, Offsets: []uint32{0, 0, 2}, Owners: []uint32{0, 1}}, "replicas: 0"},
		{"order", nil, header(1), assignment.Placement{Starts: []assignment.SliceKey{0, 0}, Owners: []uint32{0, 1}}, "slice start"},
	} {
		if a, err := assignment.Successor(tc.prev, tc.h, newTasks(3), tc.p); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, %v, want %s", tc.name, a, err, tc.want)
		}
	}
}
