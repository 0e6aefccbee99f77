package assignment_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
)

// follow makes a successor of a, with slices split, merged and moved, tasks that are gone, new,
// or restarted.
func follow(t *testing.T, rng *rand.Rand, a *assignment.Assignment) *assignment.Assignment {
	var tasks []assignment.Task
	position := map[string]uint32{}
	for _, x := range a.Tasks() {
		switch rng.IntN(8) {
		case 0:
			if a.NumTasks() > 2 {
				continue
			}
		case 1:
			x.Incarnation++
		case 2:
			x.State = assignment.TaskState(rng.IntN(5))
		}
		position[x.Name] = uint32(len(tasks))
		tasks = append(tasks, x)
	}
	if len(tasks) == 0 {
		return a
	}
	if rng.IntN(4) == 0 {
		last := tasks[len(tasks)-1]
		last.Name, last.Index = fmt.Sprintf("new-%d", last.Index+1), last.Index+1
		tasks = append(tasks, last)
	}
	var p assignment.Placement
	for s, r := range a.All() {
		if s.Start > 0 && rng.IntN(10) == 0 {
			continue // merged into the one before
		}
		var owners []uint32
		for x := range r.All() {
			if pos, ok := position[x.Name]; ok && rng.IntN(6) > 0 {
				owners = append(owners, pos)
			}
		}
		if len(owners) == 0 {
			owners = []uint32{uint32(rng.IntN(len(tasks)))}
		}
		p.Add(s.Start, owners...)
		if s.Width() > 1 && rng.IntN(10) == 0 {
			p.Add(s.Start+assignment.SliceKey(1+rng.Uint64N(s.Width()-1)), uint32(rng.IntN(len(tasks))))
		}
	}
	h := a.Header()
	h.Generation += assignment.Generation(1 + rng.IntN(3))
	b, err := assignment.Successor(a, h, tasks, p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// cuts are the keys at which something may change in any of the assignments.
func cuts(as ...*assignment.Assignment) (keys []assignment.SliceKey) {
	for _, a := range as {
		for s := range a.All() {
			keys = append(keys, s.Start, s.End-1)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// replicasAt is what an assignment says of a key, by its slices, not by Lookup.
func replicasAt(a *assignment.Assignment, k assignment.SliceKey) (owners []string, s assignment.Slice) {
	i := 0
	for i+1 < a.NumSlices() && a.Slice(i+1).Start <= k {
		i++
	}
	r := a.Replicas(i)
	for j := range r.Len() {
		owners = append(owners, fmt.Sprintf("%+v since %d", r.At(j), r.Since(j)))
	}
	return owners, a.Slice(i)
}

func owns(a *assignment.Assignment, task string, k assignment.SliceKey) bool {
	for x := range a.Lookup(k).All() {
		if x.Name == task {
			return true
		}
	}
	return false
}

// checkPart compares a part with the whole that it is of, key by key.
func checkPart(t *testing.T, whole, part *assignment.Assignment, task string) {
	t.Helper()
	h := whole.Header()
	if h.Part = task; part.Header() != h {
		t.Fatalf("header %+v, want %+v", part.Header(), h)
	}
	used := map[string]bool{task: true}
	for _, k := range cuts(whole, part) {
		got, slice := replicasAt(part, k)
		want, wantSlice := replicasAt(whole, k)
		if !owns(whole, task, k) {
			want, wantSlice = nil, slice
		}
		if !slices.Equal(got, want) || slice != wantSlice {
			t.Fatalf("key %v: %v in %v, want %v in %v", k, got, slice, want, wantSlice)
		}
		if r := part.Lookup(k); r.Len() != len(got) {
			t.Fatalf("key %v: a lookup finds %d replicas of %d", k, r.Len(), len(got))
		}
		for x := range part.Lookup(k).All() {
			used[x.Name] = true
		}
	}
	more, able, partAble, others, partOthers := 0, false, false, false, false
	for _, x := range whole.Tasks() {
		able = able || x.Name != task && (x.State == assignment.TaskRunning || x.State == assignment.TaskStarting)
		pos, ok := part.Position(x.Name)
		others, partOthers = others || x.Name != task, partOthers || ok && x.Name != task
		if used[x.Name] != ok {
			more++
		}
		if ok && part.Task(pos) != x {
			t.Fatalf("task %+v, want %+v", part.Task(pos), x)
		}
		partAble = partAble || ok && x.Name != task && (x.State == assignment.TaskRunning || x.State == assignment.TaskStarting)
	}
	if more > 1 || able != partAble || others != partOthers {
		t.Fatalf("%d of %d tasks, %d of them without need; another that can take slices: %t, in the part %t", part.NumTasks(), whole.NumTasks(), more, able, partAble)
	}
	rebuilt(t, part)
}

// rebuilt checks that what is cut is valid: it passes New, and has the same checksum then.
func rebuilt(t *testing.T, a *assignment.Assignment) {
	t.Helper()
	var tasks []assignment.Task
	for _, x := range a.Tasks() {
		tasks = append(tasks, x)
	}
	b, err := assignment.New(a.Header(), tasks, a.Columns())
	if err != nil || b.Checksum() != a.Checksum() {
		t.Fatalf("built again: %v", err)
	}
}

func TestPartSaysOfItsTaskWhatTheWholeSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedtest.Seed(t), 1))
	for range seedtest.Cases(300) {
		a := random(t, rng, 1+rng.IntN(60), 1+rng.IntN(8))
		cut := assignment.NewCut(a)
		for _, x := range a.Tasks() {
			checkPart(t, a, cut.Part(x.Name), x.Name)
		}
		checkPart(t, a, cut.Part("nobody"), "nobody")
	}
}

// Deltas lead from part to part, to what would have been cut, and moves say who had what has
// come and who has what has gone.
func TestPartsFollowEachOther(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedtest.Seed(t), 2))
	for range seedtest.Cases(300) {
		a := random(t, rng, 1+rng.IntN(60), 1+rng.IntN(8))
		b := a
		for range 1 + rng.IntN(3) {
			b = follow(t, rng, b)
		}
		before, after := assignment.NewCut(a), assignment.NewCut(b)
		for _, x := range b.Tasks() {
			next, base := after.Since(before, x.Name)
			if a == b {
				base = next
			}
			if base.Checksum() != before.Part(x.Name).Checksum() || next.Checksum() != after.Part(x.Name).Checksum() {
				t.Fatalf("%v and %v are not the parts that are cut alone", structureOf(base), structureOf(next))
			}
			d, err := assignment.Diff(base, next)
			if err != nil {
				t.Fatal(err)
			}
			got, err := assignment.Apply(base, d)
			if err != nil || got.Checksum() != next.Checksum() || fmt.Sprint(structureOf(got)) != fmt.Sprint(structureOf(next)) {
				t.Fatalf("%v\n%v\n%v", err, structureOf(got), structureOf(next))
			}
			checkMoves(t, a, b, next, x.Name)
		}
	}
}

func checkMoves(t *testing.T, a, b, part *assignment.Assignment, task string) {
	t.Helper()
	m := part.Moves()
	if a == b {
		if m != (assignment.Moves{}) {
			t.Fatal("moves since the same generation")
		}
		return
	}
	all := []*assignment.Assignment{a, b}
	for _, x := range []*assignment.Assignment{m.From, m.To} {
		if x != nil {
			rebuilt(t, x)
			all = append(all, x)
		}
	}
	for _, k := range cuts(all...) {
		var from, to []string
		if m.From != nil {
			from, _ = replicasAt(m.From, k)
		}
		if m.To != nil {
			to, _ = replicasAt(m.To, k)
		}
		var wantFrom, wantTo []string
		switch owned, owns := owns(a, task, k), owns(b, task, k); {
		case owned && !owns:
			wantTo, _ = replicasAt(b, k)
		case !owned && owns:
			wantFrom, _ = replicasAt(a, k)
		}
		if !slices.Equal(from, wantFrom) || !slices.Equal(to, wantTo) {
			t.Fatalf("key %v: from %v to %v, want from %v to %v", k, from, to, wantFrom, wantTo)
		}
	}
}

// Parts mix neither with wholes nor with parts for others, and nothing follows on them.
func TestPartsOfDifferentKinds(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedtest.Seed(t), 3))
	a := random(t, rng, 30, 4)
	b := follow(t, rng, a)
	parts := assignment.NewCut(a)
	one, two := a.Task(0).Name, a.Task(1).Name
	for _, base := range []*assignment.Assignment{a, parts.Part(two)} {
		if _, err := assignment.Diff(base, assignment.NewCut(b).Part(one)); err == nil {
			t.Errorf("a difference between part %q and part %q", base.Part(), one)
		}
	}
	d, err := assignment.Diff(parts.Part(one), assignment.NewCut(b).Part(one))
	if err != nil {
		t.Fatal(err)
	}
	for _, base := range []*assignment.Assignment{a, parts.Part(two)} {
		if _, err := assignment.Apply(base, d); err == nil {
			t.Errorf("a delta on part %q applied to part %q", one, base.Part())
		}
	}
	h := b.Header()
	if _, err := assignment.Successor(parts.Part(one), h, newTasks(1), assignment.Placement{Starts: []assignment.SliceKey{0}, Owners: []uint32{0}}); err == nil {
		t.Error("an assignment follows on a part")
	}
	c := assignment.Columns{Starts: []assignment.SliceKey{0}, Offsets: []uint32{0, 0}}
	if _, err := assignment.New(h, newTasks(1), c); err == nil {
		t.Error("a slice of a whole assignment without an owner")
	}
	h.Part = "a b"
	_, err = assignment.New(h, newTasks(1), c)
	checkFieldError(t, "name", err, "part")
}

// A part may have no task at all, and a delta on it none either.
func TestDeltaOfPartWithoutTasks(t *testing.T) {
	of := func(g assignment.Generation) *assignment.Assignment {
		a, err := assignment.New(assignment.Header{Job: "job", StoreID: 1, Generation: g, Part: "t0"}, nil, assignment.Columns{
			Starts: []assignment.SliceKey{0}, Offsets: []uint32{0, 0},
		})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	checkDelta(t, of(1), of(2))
}
