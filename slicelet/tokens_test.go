package slicelet

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber"
)

// points are the only keys of a small world: slices begin at points.
const points = 10

func point(i int) assignment.SliceKey {
	return assignment.KeyspaceEnd / points * assignment.SliceKey(i)
}

// past is all that ever happened to a job, whether or not it was seen: assignments in
// order, and since when the incarnation 1 of task "me" has owned each point in each, 0 if
// it does not.
type past struct {
	all   []*assignment.Assignment
	since [][points]int // index into all, +1
}

// tasksAt draws a task table: "me" may be missing, or another incarnation.
func tasksAt(t *rapid.T) []assignment.Task {
	var tasks []assignment.Task
	for i, name := range []string{"a", "b", "me"} {
		task := assignment.Task{Name: name, Incarnation: 1, Address: name + ":1", Index: uint32(i), Weight: 1, State: assignment.TaskRunning}
		if name == "me" {
			switch rapid.IntRange(0, 11).Draw(t, "me") {
			case 0:
				continue
			case 1:
				task.Incarnation = 2
			}
		}
		tasks = append(tasks, task)
	}
	return tasks
}

func drawPast(t *rapid.T) *past {
	p := &past{}
	store, gen := uint64(1), assignment.Generation(0)
	var prev *assignment.Assignment
	for range rapid.IntRange(1, 14).Draw(t, "generations") {
		if rapid.IntRange(0, 15).Draw(t, "new store") == 0 {
			store, prev = store+1, nil
			if rapid.Bool().Draw(t, "back") {
				gen = 0
			}
		}
		gen += assignment.Generation(rapid.IntRange(1, 3).Draw(t, "step"))
		tasks := tasksAt(t)
		var place assignment.Placement
		for i := range points {
			if i > 0 && rapid.IntRange(0, 2).Draw(t, "cut") == 0 {
				continue
			}
			owners := rapid.Permutation([]uint32{0, 1, 2}[:len(tasks)]).Draw(t, "owners")
			place.Add(point(i), owners[:rapid.IntRange(1, min(2, len(tasks))).Draw(t, "replicas")]...)
		}
		a, err := assignment.Successor(prev, assignment.Header{Job: "job", StoreID: store, Generation: gen}, tasks, place)
		if err != nil {
			t.Fatal(err)
		}
		p.add(a)
		prev = a
	}
	return p
}

func (p *past) add(a *assignment.Assignment) {
	n := len(p.all)
	var since [points]int
	for i := range points {
		owned := false
		for task := range a.Lookup(point(i)).All() {
			owned = owned || task.Name == "me" && task.Incarnation == 1
		}
		switch {
		case !owned:
		case n > 0 && p.since[n-1][i] > 0 && p.all[n-1].StoreID() == a.StoreID():
			since[i] = p.since[n-1][i]
		default:
			since[i] = n + 1
		}
	}
	p.all, p.since = append(p.all, a), append(p.since, since)
}

func stateOf(a *assignment.Assignment) *subscriber.State {
	return &subscriber.State{Assignment: a, Source: subscriber.Distributor, Link: subscriber.Distributor,
		Status: subscriber.Status{Mode: assignment.Affinity}}
}

var me = assignment.Task{Name: "me", Incarnation: 1, Address: "me:1", Weight: 1}

// TestTokens compares the tokens that a slicelet works out, from whatever
// generations it happens to see, with the truth.
func TestTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPast(t)
		skips := rapid.Bool().Draw(t, "skips")
		type handle struct {
			Handle
			at    int // in p.all
			point int
			dead  bool
		}
		var handles []*handle
		s := &Slicelet{}
		v := emptyView()
		last := -1 // seen
		for n, a := range p.all {
			if skips && rapid.Bool().Draw(t, "skip") {
				continue
			}
			before := v
			v = v.next(stateOf(a), nil, me)
			s.view.Store(v)
			for i := range points {
				truth := p.since[n][i]
				slot := v.own.find(point(i))
				if (slot >= 0) != (truth > 0) {
					t.Fatalf("generation %d, point %d: owned %t, want %t", a.Generation(), i, slot >= 0, truth > 0)
				}
				if slot < 0 {
					handles = append(handles, &handle{Handle{s: s, key: point(i)}, n, i, true})
					continue
				}
				token, exact := v.tokenOf(slot, point(i)), p.all[truth-1].Generation()
				if token < exact {
					t.Fatalf("generation %d, point %d: token %d claims more than the truth, %d", a.Generation(), i, token, exact)
				}
				if last == n-1 && token != exact && (!skips || before.mine && heldExact(before, p, last, i)) {
					t.Fatalf("generation %d, point %d: token %d, want %d since nothing was missed", a.Generation(), i, token, exact)
				}
				handles = append(handles, &handle{Handle{s, point(i), token, v.epoch, true}, n, i, false})
			}
			for _, h := range handles {
				valid := h.AssignedContinuously()
				// Truly continuous: owned since the handle's moment or before.
				truth := p.since[n][h.point]
				continuous := h.owned && truth > 0 && truth-1 <= h.at
				switch {
				case valid && (!continuous || h.dead):
					t.Fatalf("generation %d, point %d: a handle of generation %d is valid over a break", a.Generation(), h.point, p.all[h.at].Generation())
				case !valid && continuous && !skips:
					t.Fatalf("generation %d, point %d: a handle of generation %d is not valid, without a break", a.Generation(), h.point, p.all[h.at].Generation())
				}
				h.dead = h.dead || !valid
			}
			checkRuns(t, v)
			last = n
		}
	})
}

// heldExact reports whether the view knew exactly since when it owned a point, or
// that it did not.
func heldExact(v *view, p *past, n, i int) bool {
	slot := v.own.find(point(i))
	return slot < 0 || v.tokenOf(slot, point(i)) == p.all[p.since[n][i]-1].Generation()
}

// checkRuns: in order, apart, not empty, no two neighbours that could be one, and
// covering what is owned.
func checkRuns(t *rapid.T, v *view) {
	var width uint64
	for i, r := range v.runs {
		if r.Valid() != nil || i > 0 && (r.Start < v.runs[i-1].End || r.Start == v.runs[i-1].End && r.token == v.runs[i-1].token) {
			t.Fatalf("runs %v", v.runs)
		}
		width += r.Width()
	}
	for i := range v.own.entries {
		width -= v.own.slice(i).Width()
	}
	if width != 0 {
		t.Fatalf("runs %v do not cover the slices owned", v.runs)
	}
}

// TestChanges compares what a listener is told with a point by point comparison.
func TestChanges(t *testing.T) {
	draw := func(t *rapid.T, label string) []run {
		var runs []run
		for i := range points {
			if token := rapid.IntRange(0, 2).Draw(t, label); token > 0 {
				end := assignment.KeyspaceEnd
				if i+1 < points {
					end = point(i + 1)
				}
				runs = extend(runs, run{assignment.Slice{Start: point(i), End: end}, assignment.Generation(token)})
			}
		}
		return runs
	}
	at := func(runs []run, k assignment.SliceKey) assignment.Generation {
		for _, r := range runs {
			if r.Contains(k) {
				return r.token
			}
		}
		return 0
	}
	has := func(ss []assignment.Slice, k assignment.SliceKey) bool {
		return slices.ContainsFunc(ss, func(s assignment.Slice) bool { return s.Contains(k) })
	}
	rapid.Check(t, func(t *rapid.T) {
		from, to := draw(t, "from"), draw(t, "to")
		arrived, departed := changes(from, to)
		for i := range points {
			a, b := at(from, point(i)), at(to, point(i))
			if has(arrived, point(i)) != (b > 0 && a != b) || has(departed, point(i)) != (a > 0 && a != b) {
				t.Fatalf("point %d, from %d to %d: arrived %v, departed %v", i, a, b, arrived, departed)
			}
		}
		for _, ss := range [][]assignment.Slice{arrived, departed} {
			for i, s := range ss {
				if s.Valid() != nil || i > 0 && s.Start <= ss[i-1].End {
					t.Fatalf("%v", ss)
				}
			}
		}
	})
}

// A worked example: what moves tokens and what does not.
func TestTokenExample(t *testing.T) {
	q := func(i int) assignment.SliceKey { return assignment.KeyspaceEnd / 4 * assignment.SliceKey(i) }
	tasks := []assignment.Task{
		{Name: "me", Incarnation: 1, Address: "me:1", Weight: 1, State: assignment.TaskRunning},
		{Name: "other", Incarnation: 1, Address: "other:1", Index: 1, Weight: 1, State: assignment.TaskRunning},
	}
	var prev *assignment.Assignment
	v := emptyView()
	for _, step := range []struct {
		why    string
		gen    assignment.Generation
		starts []assignment.SliceKey
		owners []uint32
		hidden bool
		want   string // token of each quarter, - if not owned
	}{
		{why: "first", gen: 10, starts: []assignment.SliceKey{0, q(2)}, owners: []uint32{0, 1}, want: "10 10 - -"},
		{why: "split", gen: 11, starts: []assignment.SliceKey{0, q(1), q(2)}, owners: []uint32{0, 0, 1}, want: "10 10 - -"},
		{why: "a slice arrives, merged into mine", gen: 12, starts: []assignment.SliceKey{0, q(1), q(3)}, owners: []uint32{0, 0, 1}, want: "10 10 12 -"},
		{why: "it goes", gen: 13, starts: []assignment.SliceKey{0, q(2)}, owners: []uint32{0, 1}, want: "10 10 - -"},
		{why: "unseen, the first quarter goes", gen: 14, starts: []assignment.SliceKey{0, q(1), q(2)}, owners: []uint32{1, 0, 1}, hidden: true},
		{why: "and is back", gen: 15, starts: []assignment.SliceKey{0, q(1), q(2)}, owners: []uint32{0, 0, 1}, want: "15 10 - -"},
	} {
		a, err := assignment.Successor(prev, assignment.Header{Job: "job", StoreID: 1, Generation: step.gen}, tasks,
			assignment.Placement{Starts: step.starts, Owners: step.owners})
		if err != nil {
			t.Fatal(err)
		}
		if prev = a; step.hidden {
			continue
		}
		v = v.next(stateOf(a), nil, me)
		got := ""
		for i := range 4 {
			if n := v.own.find(q(i)); n >= 0 {
				got += fmt.Sprint(v.tokenOf(n, q(i)), " ")
			} else {
				got += "- "
			}
		}
		if got != step.want+" " {
			t.Errorf("%s: tokens %s, want %s", step.why, got, step.want)
		}
	}
}
