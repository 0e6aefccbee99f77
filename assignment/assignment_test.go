package assignment_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
)

// parts are what New takes, for tests that break them.
type parts struct {
	h     assignment.Header
	tasks []assignment.Task
	c     assignment.Columns
}

// sound are three slices with four replicas on three tasks.
func sound() *parts {
	return &parts{
		h:     assignment.Header{Job: "job", StoreID: 1, Generation: 100, Previous: 90, Horizon: 10},
		tasks: newTasks(3),
		c: assignment.Columns{
			Starts:  []assignment.SliceKey{0, 1 << 60, 1 << 62},
			Offsets: []uint32{0, 1, 3, 4}, Owners: []uint32{0, 1, 2, 0},
			Since: []uint8{0, 1, 2, 0}, SinceTable: []assignment.Generation{100, 50},
		},
	}
}

func TestNewValidates(t *testing.T) {
	const end = assignment.KeyspaceEnd
	for _, tc := range []struct {
		name    string
		breakIt func(p *parts)
		want    string
	}{
		{"nothing", func(p *parts) {}, ""},
		{"no since", func(p *parts) { p.c.Since, p.c.SinceTable = nil, nil }, ""},
		{"a task without slices", func(p *parts) { p.tasks = newTasks(4) }, ""},
		{"holes in indexes", func(p *parts) { p.tasks[2].Index = 99 }, ""},
		{"a slice of one key at the end", func(p *parts) { p.c.Starts[2] = end - 1 }, ""},
		{"horizon is the generation", func(p *parts) { p.h.Horizon, p.c.Since, p.c.SinceTable = 100, nil, nil }, ""},

		{"job", func(p *parts) { p.h.Job = "a/b" }, "job name"},
		{"job long", func(p *parts) { p.h.Job = strings.Repeat("a", 100000) }, "job name"},
		{"generation 0", func(p *parts) { p.h.Generation = 0 }, "generation: 0"},
		{"generation negative", func(p *parts) { p.h.Generation = math.MinInt64 }, "generation: -"},
		{"generation large", func(p *parts) { p.h.Generation = math.MaxInt64 }, "generation: 9223372036854775807"},
		{"previous", func(p *parts) { p.h.Previous = 100 }, "previous: 100"},
		{"previous negative", func(p *parts) { p.h.Previous = -1 }, "previous: -1"},
		{"horizon", func(p *parts) { p.h.Horizon = 101 }, "horizon: 101"},
		{"horizon negative", func(p *parts) { p.h.Horizon = -1 }, "horizon: -1"},
		{"too many tasks", func(p *parts) { p.tasks = make([]assignment.Task, assignment.MaxTasks+1) }, "tasks: 131073"},
		{"no slices", func(p *parts) { p.c = assignment.Columns{} }, "slices: 0"},
		{"no tasks", func(p *parts) { p.tasks = nil }, "owner: 0"},
		{"too many slices", func(p *parts) { p.c.Starts = make([]assignment.SliceKey, assignment.MaxSlices+1) }, "slices: 4194305"},
		{"too many owners", func(p *parts) { p.c.Owners = make([]uint32, assignment.MaxOwnerships+1) }, "owners: 8388609"},
		{"task", func(p *parts) { p.tasks[1].Incarnation = 0 }, "task incarnation: 0"},
		{"task order", func(p *parts) { p.tasks[1].Index = 2 }, "task index: 2 is not allowed: want above 2"},
		{"task names", func(p *parts) { p.tasks[1].Name = "cache-0" }, `task name: "cache-0" is not allowed: want a name of its own`},
		{"first start", func(p *parts) { p.c.Starts[0] = 1 }, "first slice start"},
		{"start twice", func(p *parts) { p.c.Starts[2] = 1 << 60 }, "slice start: \"1000000000000000\""},
		{"start past the end", func(p *parts) { p.c.Starts[2] = end }, "slice start: \"8000000000000000\""},
		{"start far past the end", func(p *parts) { p.c.Starts[2] = math.MaxUint64 }, "slice start: \"ffffffffffffffff\""},
		{"owner", func(p *parts) { p.c.Owners[3] = 3 }, "owner: 3"},
		{"owner wild", func(p *parts) { p.c.Owners[3] = math.MaxUint32 }, "owner: 4294967295"},
		{"owner twice", func(p *parts) { p.c.Owners[2] = 1 }, `owner: "cache-1" is not allowed: want once in slice 1000000000000000`},
		{"owners without offsets", func(p *parts) { p.c.Offsets = nil }, "owners: 4 is not allowed: want 3, one a slice"},
		{"offsets short", func(p *parts) { p.c.Offsets = []uint32{0, 1, 4} }, "offsets: 3 is not allowed: want 4"},
		{"offsets first", func(p *parts) { p.c.Offsets[0] = 1 }, "offsets: \"1 to 4\""},
		{"offsets last", func(p *parts) { p.c.Offsets[3] = 3 }, "offsets: \"0 to 3\""},
		{"offsets fall", func(p *parts) { p.c.Offsets = []uint32{0, 3, 1, 4} }, "replicas: -2"},
		{"offsets beyond", func(p *parts) { p.c.Offsets = []uint32{0, 1, 5, 4} }, "replicas: 4"},
		{"offsets wild", func(p *parts) { p.c.Offsets = []uint32{0, 1, math.MaxUint32, 4} }, "replicas: 4294967294"},
		{"no replica", func(p *parts) { p.c.Offsets = []uint32{0, 1, 1, 4} }, "replicas: 0 is not allowed: want 1 to 1024 in slice 1000000000000000"},
		{"no replica, as many owners as slices", func(p *parts) {
			p.c.Offsets, p.c.Owners, p.c.Since = []uint32{0, 1, 1, 3}, []uint32{0, 1, 2}, nil
		}, "replicas: 0"},
		{"too many replicas", func(p *parts) {
			p.c = assignment.Columns{Starts: []assignment.SliceKey{0}, Offsets: []uint32{0, 1025}}
			p.tasks = newTasks(1025)
			for i := range p.tasks {
				p.c.Owners = append(p.c.Owners, uint32(i))
			}
		}, "replicas: 1025"},
		{"since short", func(p *parts) { p.c.Since = []uint8{0} }, "since entries: 1"},
		{"since entry", func(p *parts) { p.c.Since[0] = 3 }, "since entry: 3"},
		{"since order", func(p *parts) { p.c.SinceTable = []assignment.Generation{50, 100} }, "since: 100"},
		{"since twice", func(p *parts) { p.c.SinceTable = []assignment.Generation{50, 50} }, "since: 50"},
		{"since of the future", func(p *parts) { p.c.SinceTable[0] = 101 }, "since: 101"},
		{"since at the horizon", func(p *parts) { p.c.SinceTable[1] = 10 }, "since: 10 is not allowed: want after horizon 10"},
		{"too many since", func(p *parts) { p.c.SinceTable = make([]assignment.Generation, 128) }, "since generations: 128"},
	} {
		p := sound()
		tc.breakIt(p)
		a, err := assignment.New(p.h, p.tasks, p.c)
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			} else {
				checkValid(t, a)
			}
			continue
		}
		checkFieldError(t, tc.name, err, tc.want)
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%s: an error of %d bytes", tc.name, len(err.Error()))
		}
		if err != nil && !strings.HasPrefix(err.Error(), `assignment of job "`) {
			t.Errorf("%s: %v does not say what it is about", tc.name, err)
		}
	}
}

// checkValid is an oracle for validity that goes through what readers see.
func checkValid(tb rapid.TB, a *assignment.Assignment) {
	tb.Helper()
	var end assignment.SliceKey
	owners, n := 0, 0
	for s, r := range a.All() {
		if s.Start != end || s.Valid() != nil {
			tb.Fatalf("slice %d is %s after %s", n, s, end)
		}
		end = s.End
		if a.Slice(n) != s || r.Len() < 1 || r.Len() > assignment.MaxReplicas {
			tb.Fatalf("slice %d, %s, has %d replicas", n, s, r.Len())
		}
		seen := map[string]bool{}
		i := 0
		for task := range r.All() {
			if task != a.Task(r.Position(i)) || seen[task.Name] || !r.Has(r.Position(i)) {
				tb.Fatalf("slice %s: replica %d, %v", s, i, task)
			}
			seen[task.Name] = true
			if since := r.Since(i); since < a.Header().Horizon || since > a.Generation() {
				tb.Fatalf("slice %s: since %d, outside of %d to %d", s, since, a.Header().Horizon, a.Generation())
			}
			i++
		}
		for p := range a.NumTasks() {
			if r.Has(p) != seen[a.Task(p).Name] {
				tb.Fatalf("slice %s: Has(%d) is %v", s, p, r.Has(p))
			}
		}
		owners += r.Len()
		n++
	}
	if end != assignment.KeyspaceEnd || n != a.NumSlices() || owners != a.NumOwners() {
		tb.Fatalf("%d slices of %d and %d owners of %d, up to %s", n, a.NumSlices(), owners, a.NumOwners(), end)
	}
	last := -1
	for i, task := range a.Tasks() {
		if err := task.Validate(); err != nil || int(task.Index) <= last {
			tb.Fatalf("task %d: %v, %v", i, task, err)
		}
		last = int(task.Index)
		if p, ok := a.Position(task.Name); !ok || p != i {
			tb.Fatalf("task %d is found at %d, %v", i, p, ok)
		}
	}
	if h := a.Header(); h.Job != a.Job() || h.StoreID != a.StoreID() || h.Previous != a.Previous() || h.Previous >= h.Generation || h.Generation < 1 {
		tb.Fatalf("header %+v", h)
	}
}

func TestPositionOfNobody(t *testing.T) {
	p := sound()
	a, err := assignment.New(p.h, p.tasks, p.c)
	if err != nil {
		t.Fatal(err)
	}
	if pos, ok := a.Position("nobody"); ok {
		t.Errorf("nobody is at %d", pos)
	}
}

func TestNewer(t *testing.T) {
	of := func(store uint64, g assignment.Generation) *assignment.Assignment {
		p := sound()
		p.h = assignment.Header{Job: "job", StoreID: store, Generation: g}
		p.c.Since, p.c.SinceTable = nil, nil
		a, err := assignment.New(p.h, p.tasks, p.c)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	held := of(1, 10)
	for _, tc := range []struct {
		a, b *assignment.Assignment
		want bool
	}{{held, nil, true}, {held, held, false}, {of(1, 11), held, true}, {of(1, 9), held, false}, {of(2, 9), held, true}} {
		if tc.a.Newer(tc.b) != tc.want {
			t.Errorf("%v newer than %v: %v", tc.a, tc.b, !tc.want)
		}
	}
}

func TestZeroReplicas(t *testing.T) {
	var r assignment.Replicas
	for range r.All() {
		t.Error("a replica of nothing")
	}
	if r.Len() != 0 || r.Has(0) {
		t.Errorf("%d replicas", r.Len())
	}
}

// Equal content has one checksum however the columns put it, and any change of
// the content another.
func TestChecksum(t *testing.T) {
	build := func(change func(p *parts)) [2]uint64 {
		t.Helper()
		p := sound()
		change(p)
		a, err := assignment.New(p.h, p.tasks, p.c)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := a.DeltaSum(), deltaSumOf(a); got != want {
			t.Errorf("delta sum %016x, want %016x", got, want)
		}
		return [2]uint64{a.Checksum(), a.DeltaSum()}
	}
	one := func(p *parts) {
		p.c = assignment.Columns{Starts: p.c.Starts, Owners: []uint32{0, 1, 2}}
	}
	if a, b := build(one), build(func(p *parts) {
		one(p)
		p.c.Offsets, p.c.Since, p.c.SinceTable = []uint32{0, 1, 2, 3}, []uint8{0, 0, 0}, []assignment.Generation{99}
	}); a != b {
		t.Errorf("%016x with columns that say nothing, %016x without", b, a)
	}
	if a, b := build(func(p *parts) {}), build(func(p *parts) {
		p.c.SinceTable, p.c.Since = []assignment.Generation{100, 99, 50, 49}, []uint8{0, 1, 3, 0}
	}); a != b {
		t.Errorf("%016x with since generations that nothing refers to, %016x without", b, a)
	}
	seen := map[uint64]int{}
	for i, change := range []func(p *parts){
		func(p *parts) {},
		one,
		func(p *parts) { p.h.Job = "job2" },
		func(p *parts) { p.h.StoreID++ },
		func(p *parts) { p.h.Generation++ },
		func(p *parts) { p.h.Previous-- },
		func(p *parts) { p.h.Horizon-- },
		func(p *parts) { p.tasks = newTasks(4) },
		func(p *parts) { p.tasks[1].Name += "x" },
		func(p *parts) { p.tasks[1].Incarnation++ },
		func(p *parts) { p.tasks[1].Address += "1" },
		func(p *parts) { p.tasks[1].Address, p.tasks[1].Zone = p.tasks[1].Address+"z", p.tasks[1].Zone[1:] },
		func(p *parts) { p.tasks[1].Zone = "" },
		func(p *parts) { p.tasks[2].Index++ },
		func(p *parts) { p.tasks[1].Weight = 1.5 },
		func(p *parts) { p.tasks[1].State = assignment.TaskDraining },
		func(p *parts) { p.c.Starts[1]++ },
		func(p *parts) { p.c.Owners[0] = 1 },
		func(p *parts) { p.c.Owners[1], p.c.Owners[2] = 2, 1 },
		func(p *parts) { p.c.Offsets = []uint32{0, 2, 3, 4} },
		func(p *parts) { p.c.Since[0] = 1 },
		func(p *parts) { p.c.SinceTable[1]-- },
	} {
		for _, sum := range build(change) {
			if other, ok := seen[sum]; ok {
				t.Errorf("changes %d and %d have one checksum", other, i)
			}
			seen[sum] = i
		}
	}
}

// deltaSumOf is what the documents say that a delta sum is.
func deltaSumOf(a *assignment.Assignment) (sum uint64) {
	add := func(values ...any) {
		var b []byte
		for _, v := range values {
			switch v := v.(type) {
			case string:
				b = append(binary.LittleEndian.AppendUint64(b, uint64(len(v))), v...)
			case uint64:
				b = binary.LittleEndian.AppendUint64(b, v)
			}
		}
		sum += xxhash.Sum64(b)
	}
	h := a.Header()
	header := []any{h.Job, h.StoreID, uint64(h.Generation), uint64(h.Previous), uint64(h.Horizon)}
	if h.Part != "" {
		header = append(header, h.Part)
	}
	add(append(header, uint64(a.NumSlices()))...)
	for _, t := range a.Tasks() {
		add(t.Name, t.Incarnation, t.Address, t.Zone, uint64(t.Index), math.Float64bits(t.Weight), uint64(t.State))
	}
	for s, r := range a.All() {
		slice := []any{uint64(s.Start)}
		for i := range r.Len() {
			slice = append(slice, uint64(r.At(i).Index))
			if g := r.Since(i); g > h.Horizon {
				add(uint64(s.Start), uint64(r.At(i).Index), uint64(g))
			}
		}
		add(slice...)
	}
	return sum
}

// Columns that say nothing are left out.
func TestColumnsAreInOneForm(t *testing.T) {
	p := sound()
	p.c = assignment.Columns{Starts: p.c.Starts, Offsets: []uint32{0, 1, 2, 3}, Owners: []uint32{0, 1, 2}, Since: []uint8{0, 0, 0}, SinceTable: []assignment.Generation{99}}
	a, err := assignment.New(p.h, p.tasks, p.c)
	if err != nil {
		t.Fatal(err)
	}
	if c := a.Columns(); c.Offsets != nil || c.Since != nil || c.SinceTable != nil {
		t.Errorf("%+v", c)
	}
}

// The iterators stop when asked to, and the name fits a log line.
func TestIteratorsStop(t *testing.T) {
	a := random(t, rand.New(rand.NewPCG(1, 9)), 5, 4)
	if got, want := a.String(), fmt.Sprintf("job job-1 generation %d (4 tasks, 5 slices)", a.Generation()); got != want {
		t.Errorf("String: %q, want %q", got, want)
	}
	n := 0
	for range a.All() {
		n++
		break
	}
	for range a.Tasks() {
		n++
		break
	}
	for range a.Replicas(0).All() {
		n++
		break
	}
	if n != 3 {
		t.Errorf("%d steps", n)
	}
}

func TestEqual(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 8, 1000, 4096, 99_999, assignment.MaxSlices} {
		starts := assignment.Equal(n)
		if len(starts) != n || starts[0] != 0 || !slices.IsSorted(starts) {
			t.Fatalf("Equal(%d): %d starts", n, len(starts))
		}
		mean := math.Ldexp(1, 63) / float64(n)
		for i, s := range starts {
			end := assignment.KeyspaceEnd
			if i+1 < n {
				end = starts[i+1]
			}
			if w := float64(end - s); math.Abs(w/mean-1) > math.Ldexp(1, -17) {
				t.Fatalf("Equal(%d): width of slice %d is %g of the mean", n, i, w/mean)
			}
			if s%(1<<23) != 0 {
				t.Fatalf("Equal(%d): start %s is not round", n, s)
			}
		}
	}
	for _, n := range []int{0, -5} {
		if got := len(assignment.Equal(n)); got != 1 {
			t.Errorf("Equal(%d) has %d slices", n, got)
		}
	}
	if got := len(assignment.Equal(assignment.MaxSlices + 1)); got != assignment.MaxSlices {
		t.Errorf("too many slices: %d", got)
	}
}

func TestPlacementAdd(t *testing.T) {
	p := assignment.Placement{Starts: []assignment.SliceKey{0, 10}, Owners: []uint32{4, 5}}
	p.Add(20, 6, 7)
	p.Add(30, 8)
	want := [][]uint32{{4}, {5}, {6, 7}, {8}}
	for i, w := range want {
		if got := p.Range(i); !slices.Equal(got, w) {
			t.Errorf("slice %d: %v, want %v", i, got, w)
		}
	}
	if !slices.Equal(p.Starts, []assignment.SliceKey{0, 10, 20, 30}) || !slices.Equal(p.Offsets, []uint32{0, 1, 2, 4, 5}) {
		t.Errorf("starts %v, offsets %v", p.Starts, p.Offsets)
	}
	// What is appended to a range does not write into the next.
	_ = append(p.Range(1), 99)
	single := assignment.Placement{Starts: p.Starts[:2], Owners: []uint32{1, 2}}
	_ = append(single.Range(0), 99)
	if p.Range(2)[0] != 6 || single.Range(1)[0] != 2 {
		t.Error("ranges overlap")
	}
}
