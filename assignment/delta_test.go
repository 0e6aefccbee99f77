package assignment_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
)

// small draws an assignment from a small world, so that two of them have much
// in common: 16 cells of keys, tasks of 7 indexes and 9 names, few generations.
func small(t *rapid.T, generation assignment.Generation) *assignment.Assignment {
	h := assignment.Header{Job: "job", StoreID: 1, Generation: generation, Previous: generation - 1}
	h.Horizon = assignment.Generation(rapid.IntRange(0, 6).Draw(t, "horizon"))
	var tasks []assignment.Task
	named := map[string]bool{}
	for i := range uint32(7) {
		name := fmt.Sprintf("t%d", rapid.IntRange(0, 8).Draw(t, "name"))
		if !named[name] && rapid.IntRange(0, 4).Draw(t, "there") > 0 {
			named[name] = true
			tasks = append(tasks, assignment.Task{Name: name, Index: i, Address: "a:1", Weight: 1, Incarnation: rapid.Uint64Range(1, 2).Draw(t, "incarnation")})
		}
	}
	if len(tasks) == 0 {
		tasks = []assignment.Task{{Name: "t0", Index: 3, Address: "a:1", Weight: 1, Incarnation: 1}}
	}
	c := assignment.Columns{Offsets: []uint32{0}}
	for g := min(generation, 8); g > h.Horizon; g-- {
		if rapid.Bool().Draw(t, "since exists") {
			c.SinceTable = append(c.SinceTable, g)
		}
	}
	for cell := range 16 {
		if cell > 0 && rapid.Bool().Draw(t, "merged") {
			continue
		}
		c.Starts = append(c.Starts, assignment.SliceKey(cell)<<59)
		owners := rapid.IntRange(0, len(tasks)-1).Draw(t, "owner")
		n := rapid.IntRange(1, min(2, len(tasks))).Draw(t, "replicas")
		for i := range n {
			c.Owners = append(c.Owners, uint32((owners+i)%len(tasks)))
			c.Since = append(c.Since, uint8(rapid.IntRange(0, len(c.SinceTable)).Draw(t, "since")))
		}
		c.Offsets = append(c.Offsets, uint32(len(c.Owners)))
	}
	a, err := assignment.New(h, tasks, c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// checkDelta diffs and applies, and compares with the oracle.
func checkDelta(t rapid.TB, base, next *assignment.Assignment) *assignment.Delta {
	t.Helper()
	before := structureOf(base)
	base.DeltaSum() // so that Diff works out next's from it
	d, err := assignment.Diff(base, next)
	if err != nil {
		t.Fatal(err)
	}
	for _, apply := range []func(*assignment.Assignment, *assignment.Delta) (*assignment.Assignment, error){assignment.Apply, assignment.ApplyPatched} {
		got, err := apply(base, d)
		if err != nil {
			t.Fatalf("apply: %v", err)
		}
		checkSame(t, got, next)
	}
	if diff := difference(before, structureOf(base)); diff != "" {
		t.Fatalf("the base was changed: %s", diff)
	}
	return d
}

// checkSame compares what came of deltas with what was made at once.
func checkSame(t rapid.TB, got, next *assignment.Assignment) {
	t.Helper()
	if got.NumSlices() != next.NumSlices() || got.NumOwners() != next.NumOwners() {
		t.Fatalf("%d slices with %d owners, want %d with %d", got.NumSlices(), got.NumOwners(), next.NumSlices(), next.NumOwners())
	}
	anew, err := assignment.New(next.Header(), tasksOf(next), next.Columns())
	if err != nil {
		t.Fatal(err)
	}
	if sum := anew.DeltaSum(); got.DeltaSum() != sum || next.DeltaSum() != sum {
		t.Fatalf("delta sums %x and %x, want %x", got.DeltaSum(), next.DeltaSum(), sum)
	}
	for i := range next.NumSlices() {
		s := next.Slice(i)
		for _, k := range []assignment.SliceKey{s.Start, s.Start + (s.End-s.Start)/2, s.End - 1} {
			if !sameOwners(got.Lookup(k), next.Replicas(i)) {
				t.Fatalf("key %s has others than slice %d", k, i)
			}
		}
	}
	if diff := difference(structureOf(next), structureOf(got)); diff != "" {
		t.Fatalf("not what was diffed: %s", diff)
	}
	if got.Checksum() != next.Checksum() {
		t.Fatal("checksums differ")
	}
	for i := range next.NumSlices() {
		s := next.Slice(i)
		for _, k := range []assignment.SliceKey{s.Start, s.Start + (s.End-s.Start)/2, s.End - 1} {
			if at := got.Find(k); at != i {
				t.Fatalf("key %s is found in slice %d, want %d", k, at, i)
			}
		}
	}
}

func tasksOf(a *assignment.Assignment) (out []assignment.Task) {
	for _, t := range a.Tasks() {
		out = append(out, t)
	}
	return out
}

// difference is cmp.Diff, but takes little time if there is none.
func difference(want, got structure) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got)
}

// sameOwners reports whether replicas are the same tasks and own since the same generations.
func sameOwners(a, b assignment.Replicas) bool {
	same := a.Len() == b.Len()
	for i := 0; same && i < a.Len(); i++ {
		same = a.At(i) == b.At(i) && a.Since(i) == b.Since(i)
	}
	return same
}

func TestDiffApplyOnArbitraryPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := small(t, assignment.Generation(rapid.IntRange(8, 10).Draw(t, "base")))
		next := small(t, assignment.Generation(rapid.IntRange(8, 10).Draw(t, "next")))
		d := checkDelta(t, base, next)
		if same := checkDelta(t, base, base); len(same.Edits)+len(same.Put)+len(same.Drop) != 0 {
			t.Fatalf("from an assignment to itself: %+v", same)
		}
		// A delta holds no slice that base has too.
		created := 0
		for _, e := range d.Edits {
			created += int(e.New)
		}
		if want := countNew(base, next); created != want {
			t.Fatalf("%d slices in the delta, %d differ", created, want)
		}
	})
}

// A horizon that is further back in next (never so between an assignment and
// its successor) brings apart what base does not tell apart.
func TestDiffApplyWithHorizonGoingBack(t *testing.T) {
	of := func(h assignment.Header, since []uint8, table ...assignment.Generation) *assignment.Assignment {
		a, err := assignment.New(h, newTasks(1), assignment.Columns{
			Starts: []assignment.SliceKey{0, 10, 20}, Owners: []uint32{0, 0, 0}, Since: since, SinceTable: table,
		})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	base := of(assignment.Header{Job: "job", Generation: 10, Horizon: 5}, []uint8{0, 0, 1}, 7)
	next := of(assignment.Header{Job: "job", Generation: 11, Horizon: 2}, []uint8{2, 0, 1}, 7, 5)
	if d := checkDelta(t, base, next); len(d.Edits) != 1 || d.Edits[0] != (assignment.Edit{Keep: 1, Old: 1, New: 1}) {
		t.Errorf("edits %v, want one of the slice whose since is new", d.Edits)
	}
}

// countNew counts slices of next that base does not have alike, the horizon apart.
func countNew(base, next *assignment.Assignment) int {
	type key struct {
		s      assignment.Slice
		owners string
	}
	of := func(a *assignment.Assignment, i int) key {
		r := a.Replicas(i)
		var owners string
		for j := range r.Len() {
			owners += fmt.Sprint(r.At(j).Index, "@", max(r.Since(j), next.Header().Horizon), " ")
		}
		return key{a.Slice(i), owners}
	}
	has := map[key]bool{}
	for i := range base.NumSlices() {
		has[of(base, i)] = true
	}
	n := 0
	for i := range next.NumSlices() {
		if !has[of(next, i)] {
			n++
		}
	}
	return n
}

// A job's life at realistic size: moves, splits, merges, replicas, restarts,
// tasks that come and go; each step as a delta, and steps skipped.
func TestDiffApplyThroughALife(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 4))
		l := newLife(rng, 40, 200)
		var all []*assignment.Assignment
		for range 30 {
			all = append(all, l.step(t))
			checkValid(t, all[len(all)-1])
		}
		for i := 1; i < len(all); i++ {
			checkDelta(t, all[i-1], all[i])
			checkDelta(t, all[rng.IntN(i)], all[i])
		}
	}
}

// Slices of all shapes of which some go, come, and change owners: what is looked up in the result
// is found as in one that was built anew.
func TestApplyIndexes(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, 0))
	for name, starts := range shapes(rng) {
		for _, several := range []bool{false, true} {
			for _, share := range []int{3, len(starts)/10 + 1} { // of all slices, one in so many
				p := placed(rng, starts, several)
				base := newPlaced(t, p)
				var q assignment.Placement
				for i, s := range starts {
					if rng.IntN(share) > 0 {
						q.Add(s, p.Range(i)...)
						continue
					}
					end := assignment.KeyspaceEnd
					if i+1 < len(starts) {
						end = starts[i+1]
					}
					switch rng.IntN(4) {
					case 0: // goes
						if i == 0 {
							q.Add(s, 4)
						}
					case 1: // is split
						q.Add(s, p.Range(i)...)
						if s+1 < end {
							q.Add(s+1+assignment.SliceKey(rng.Uint64N(uint64(end-s-1))), 1, 2)
						}
					case 2:
						q.Add(s, 3)
					case 3:
						q.Add(s, 4, 0)
					}
				}
				h := base.Header()
				h.Generation++
				next, err := assignment.New(h, newTasks(5), assignment.Columns{Starts: q.Starts, Offsets: q.Offsets, Owners: q.Owners})
				if err != nil {
					t.Fatalf("%s, seed %d: %v", name, seed, err)
				}
				checkDelta(t, base, next)
			}
		}
	}
}

// placed gives slices to five tasks, one or more each.
func placed(rng *rand.Rand, starts []assignment.SliceKey, several bool) assignment.Placement {
	var p assignment.Placement
	for i, s := range starts {
		owners := []uint32{uint32(i % 5), uint32(i%5+1) % 5, uint32(i%5+2) % 5}
		n := 1
		if several {
			n += max(rng.IntN(8)-5, 0)
		}
		p.Add(s, owners[:n]...)
	}
	return p
}

// life is a job's placement, changed at random.
type life struct {
	rng   *rand.Rand
	tasks []assignment.Task
	index uint32
	owner map[assignment.SliceKey][]string // by start
	oneIn int                              // of slices is changed in a way
	stays bool                             // of tasks: none leaves
	now   *assignment.Assignment
}

func newLife(rng *rand.Rand, tasks, slicesN int) *life {
	l := &life{rng: rng, oneIn: 60, owner: map[assignment.SliceKey][]string{}}
	for range tasks {
		l.join()
	}
	for _, s := range assignment.Equal(slicesN) {
		l.owner[s] = []string{l.anyone()}
	}
	return l
}

func (l *life) anyone() string { return l.tasks[l.rng.IntN(len(l.tasks))].Name }

func (l *life) join() {
	l.tasks = append(l.tasks, assignment.Task{
		Name: fmt.Sprintf("task-%d", l.index), Index: l.index, Incarnation: l.rng.Uint64() | 1,
		Address: fmt.Sprintf("10.0.0.%d:80", l.index), Weight: 1, State: assignment.TaskRunning,
	})
	l.index++
}

func (l *life) step(tb testing.TB) *assignment.Assignment {
	tb.Helper()
	starts := make([]assignment.SliceKey, 0, len(l.owner))
	for s := range l.owner {
		starts = append(starts, s)
	}
	slices.Sort(starts)
	for i, s := range starts {
		switch l.rng.IntN(l.oneIn) {
		case 0: // move
			l.owner[s] = []string{l.anyone()}
		case 1: // split
			if i+1 < len(starts) {
				l.owner[s+(starts[i+1]-s)/2] = slices.Clone(l.owner[s])
			}
		case 2: // merge into the one before
			if i > 0 {
				delete(l.owner, s)
			}
		case 3: // replicate
			if who := l.anyone(); !slices.Contains(l.owner[s], who) {
				l.owner[s] = append(l.owner[s], who)
			}
		}
	}
	switch l.rng.IntN(3) {
	case 0: // restart
		l.tasks[l.rng.IntN(len(l.tasks))].Incarnation++
	case 1: // leave, join
		if l.stays {
			if l.rng.IntN(10) == 0 {
				l.join()
			}
			break
		}
		gone := l.rng.IntN(len(l.tasks))
		name := l.tasks[gone].Name
		l.tasks = slices.Delete(l.tasks, gone, gone+1)
		l.join()
		for s, who := range l.owner {
			if who = slices.DeleteFunc(who, func(w string) bool { return w == name }); len(who) == 0 {
				who = []string{l.tasks[len(l.tasks)-1].Name}
			}
			l.owner[s] = who
		}
	}
	starts = starts[:0]
	for s := range l.owner {
		starts = append(starts, s)
	}
	slices.Sort(starts)
	position := map[string]uint32{}
	for i, t := range l.tasks {
		position[t.Name] = uint32(i)
	}
	var p assignment.Placement
	for _, s := range starts {
		var owners []uint32
		for _, name := range l.owner[s] {
			owners = append(owners, position[name])
		}
		p.Add(s, owners...)
	}
	h := assignment.Header{Job: "job", StoreID: 1, Generation: 1000}
	if l.now != nil {
		h.Generation = l.now.Generation() + 1
	}
	a, err := assignment.Successor(l.now, h, slices.Clone(l.tasks), p)
	if err != nil {
		tb.Fatal(err)
	}
	l.now = a
	return a
}

func TestDiffRefusesOtherJobsAndStores(t *testing.T) {
	p := sound()
	a, _ := assignment.New(p.h, p.tasks, p.c)
	for _, change := range []func(h *assignment.Header){
		func(h *assignment.Header) { h.Job = "other" },
		func(h *assignment.Header) { h.StoreID++ },
	} {
		q := sound()
		change(&q.h)
		b, err := assignment.New(q.h, q.tasks, q.c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := assignment.Diff(a, b); !errors.Is(err, assignment.ErrBase) {
			t.Errorf("diff: %v", err)
		}
		d, _ := assignment.Diff(a, a)
		if _, err := assignment.Apply(b, d); !errors.Is(err, assignment.ErrBase) {
			t.Errorf("apply: %v", err)
		}
	}
	d, _ := assignment.Diff(a, a)
	d.Base++
	if _, err := assignment.Apply(a, d); !errors.Is(err, assignment.ErrBase) {
		t.Errorf("apply to another generation: %v", err)
	}
}

func TestApplyRefuses(t *testing.T) {
	base := sound()
	a, _ := assignment.New(base.h, base.tasks, base.c)
	for _, tc := range []struct {
		name string
		d    assignment.Delta
		want string
	}{
		{"edit of nothing", assignment.Delta{Edits: []assignment.Edit{{0, 0, 1}}, Slices: assignment.Columns{Owners: []uint32{0}}}, "delta edit: "},
		{"edit to nothing", assignment.Delta{Edits: []assignment.Edit{{0, 1, 0}}}, "delta edit: "},
		{"edit past the end", assignment.Delta{Edits: []assignment.Edit{{3, 1, 1}}, Slices: assignment.Columns{Owners: []uint32{0}}}, "delta edit: 4 is not allowed: want within the 3 slices"},
		{"keep wraps", assignment.Delta{Edits: []assignment.Edit{{math.MaxUint32, 1, 1}}, Slices: assignment.Columns{Owners: []uint32{0}}}, "delta edit: "},
		{"too many slices", assignment.Delta{Edits: []assignment.Edit{{0, 1, math.MaxUint32}}}, "delta slices: "},
		{"no columns", assignment.Delta{Edits: []assignment.Edit{{0, 1, 1}}}, "delta columns: "},
		{"columns of no edit", assignment.Delta{Slices: assignment.Columns{Owners: []uint32{0}}}, "delta columns: "},
		{"offsets", assignment.Delta{Edits: []assignment.Edit{{0, 1, 1}}, Slices: assignment.Columns{Owners: []uint32{0}, Offsets: []uint32{0, 2}}}, "delta columns: "},
		{"offsets fall", assignment.Delta{Edits: []assignment.Edit{{0, 1, 2}}, Slices: assignment.Columns{Starts: []assignment.SliceKey{5}, Owners: []uint32{0, 1}, Offsets: []uint32{0, 3, 2}}}, "delta columns: "},
		{"slice without owner", assignment.Delta{Edits: []assignment.Edit{{0, 1, 2}}, Slices: assignment.Columns{Starts: []assignment.SliceKey{5}, Owners: []uint32{0, 1}, Offsets: []uint32{0, 0, 2}}}, "replicas: 0"},
		{"start leaves the edit", assignment.Delta{Edits: []assignment.Edit{{0, 1, 2}}, Slices: assignment.Columns{Starts: []assignment.SliceKey{1 << 60}, Owners: []uint32{0, 1}}}, "delta slice start: "},
		{"start before the edit", assignment.Delta{Edits: []assignment.Edit{{1, 1, 2}}, Slices: assignment.Columns{Starts: []assignment.SliceKey{1}, Owners: []uint32{0, 1}}}, "slice start: "},
		{"owner", assignment.Delta{Edits: []assignment.Edit{{0, 1, 1}}, Slices: assignment.Columns{Owners: []uint32{3}}}, "owner: 3"},
		{"drop of an owner", assignment.Delta{Drop: []uint32{1}}, `delta drop: "cache-1" is not allowed: want a task that owns nothing`},
		{"drop of no task", assignment.Delta{Drop: []uint32{7}}, "delta drop: "},
		{"drop of one put", assignment.Delta{Put: newTasks(1), Drop: []uint32{0}}, "delta drop: "},
		{"put order", assignment.Delta{Put: append(newTasks(1), newTasks(1)...)}, "delta put task index: 0"},
		{"put a name that is there", assignment.Delta{Put: []assignment.Task{{Name: "cache-0", Index: 9, Incarnation: 1, Address: "a:1", Weight: 1}}}, "task name: "},
		{"put a bad task", assignment.Delta{Put: []assignment.Task{{Index: 9}}}, "task name: "},
		{"since table short", assignment.Delta{Slices: assignment.Columns{SinceTable: []assignment.Generation{100}}}, "delta since table: "},
		{"since table long", assignment.Delta{Slices: assignment.Columns{SinceTable: make([]assignment.Generation, 300)}}, ""},
	} {
		tc.d.H, tc.d.Base = assignment.Header{Job: "job", StoreID: 1, Generation: 101, Previous: 100, Horizon: 10}, 100
		if tc.d.Slices.SinceTable == nil {
			tc.d.Slices.SinceTable = []assignment.Generation{100, 50}
		}
		_, err := assignment.Apply(a, &tc.d)
		checkFieldError(t, tc.name, err, tc.want)
		_, err = assignment.ApplyPatched(a, &tc.d)
		checkFieldError(t, tc.name+", patched", err, tc.want)
	}
}

func TestApplyRefusesTooManySlices(t *testing.T) {
	h := assignment.Header{Job: "job", StoreID: 1, Generation: 1}
	a, err := assignment.New(h, newTasks(1), assignment.Columns{Starts: assignment.Equal(assignment.MaxSlices), Owners: make([]uint32, assignment.MaxSlices)})
	if err != nil {
		t.Fatal(err)
	}
	h.Generation = 2
	_, err = assignment.Apply(a, &assignment.Delta{ // of a job of which all deltas are patches
		H: h, Base: 1, Edits: []assignment.Edit{{Old: 1, New: 2}},
		Slices: assignment.Columns{Starts: []assignment.SliceKey{1}, Owners: []uint32{0, 0}},
	})
	checkFieldError(t, "one slice more", err, fmt.Sprintf("slices: %d", assignment.MaxSlices+1))
}

// Whatever is done to a delta, what comes of it is a valid assignment or an error.
func TestHostileDeltas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, base, next := small(t, 8), small(t, 9), small(t, 10)
		d, err := assignment.Diff(first, base)
		if err != nil {
			t.Fatal(err)
		}
		patched, err := assignment.ApplyPatched(first, d)
		if err != nil {
			t.Fatal(err)
		}
		if d, err = assignment.Diff(base, next); err != nil {
			t.Fatal(err)
		}
		wild := rapid.OneOf(rapid.Uint32Range(0, 8), rapid.Uint32(), rapid.Just[uint32](math.MaxUint32))
		cells := rapid.OneOf(rapid.Map(rapid.Uint64Range(0, 17), func(c uint64) assignment.SliceKey { return assignment.SliceKey(c << 59) }),
			rapid.Map(rapid.Uint64(), func(c uint64) assignment.SliceKey { return assignment.SliceKey(c) }))
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			c := &d.Slices
			// Columns of their own: a delta shares some with its assignments.
			c.Owners, c.Since, c.SinceTable = slices.Clone(c.Owners), slices.Clone(c.Since), slices.Clone(c.SinceTable)
			switch rapid.IntRange(0, 12).Draw(t, "change") {
			case 0:
				change(t, &d.Edits, rapid.Custom(func(t *rapid.T) assignment.Edit {
					return assignment.Edit{Keep: wild.Draw(t, "keep"), Old: wild.Draw(t, "old"), New: wild.Draw(t, "new")}
				}))
			case 1:
				change(t, &c.Starts, cells)
			case 2:
				change(t, &c.Owners, wild)
			case 3:
				change(t, &c.Offsets, wild)
			case 4:
				change(t, &c.Since, rapid.Byte())
			case 5:
				change(t, &c.SinceTable, rapid.Map(rapid.Int64Range(-1, 12), func(g int64) assignment.Generation { return assignment.Generation(g) }))
			case 6:
				change(t, &d.Drop, wild)
			case 7:
				change(t, &d.Put, rapid.Custom(func(t *rapid.T) assignment.Task {
					return assignment.Task{Name: rapid.SampledFrom([]string{"t1", "t2", "new", "a/b", ""}).Draw(t, "name"), Index: wild.Draw(t, "index"), Incarnation: 1, Address: "a:1", Weight: 1}
				}))
			case 8:
				d.H.Horizon = assignment.Generation(rapid.Int64Range(-1, 12).Draw(t, "horizon"))
			case 9:
				d.H.Generation = assignment.Generation(rapid.Int64Range(-1, 12).Draw(t, "generation"))
			case 10:
				d.H.Previous = assignment.Generation(rapid.Int64Range(-1, 12).Draw(t, "previous"))
			case 11:
				c.Offsets = nil
			case 12:
				c.Since = nil
			}
		}
		before := structureOf(base)
		a, err := assignment.Apply(base, d)
		if err == nil {
			checkValid(t, a)
			if a.Header() != d.H {
				t.Fatalf("header %+v, the delta's is %+v", a.Header(), d.H)
			}
		}
		for _, on := range []*assignment.Assignment{base, patched} {
			b, errPatched := assignment.ApplyPatched(on, d)
			if (err == nil) != (errPatched == nil) {
				t.Fatalf("error %v, and where it is to be a patch %v", err, errPatched)
			}
			if err == nil {
				checkSame(t, b, a)
			}
		}
		if diff := cmp.Diff(before, structureOf(base)); diff != "" {
			t.Fatalf("the base was changed: %s", diff)
		}
	})
}

// change replaces, adds, removes or doubles an element.
func change[T any](t *rapid.T, s *[]T, g *rapid.Generator[T]) {
	out := slices.Clone(*s)
	at := rapid.IntRange(0, max(len(out)-1, 0)).Draw(t, "at")
	switch how := rapid.IntRange(0, 3).Draw(t, "how"); {
	case how == 0 || len(out) == 0:
		out = slices.Insert(out, at, g.Draw(t, "new"))
	case how == 1:
		out = slices.Delete(out, at, at+1)
	case how == 2:
		out = slices.Insert(out, at, out[at])
	default:
		out[at] = g.Draw(t, "other")
	}
	*s = out
}
