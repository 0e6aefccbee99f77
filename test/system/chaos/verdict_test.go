package chaos

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/test/system/chaos/record"
)

const s = time.Second

// even makes an assignment of a job whose tasks own equal parts each.
func even(t *testing.T, g, previous assignment.Generation, names ...string) *assignment.Assignment {
	t.Helper()
	var tasks []assignment.Task
	var p assignment.Placement
	starts := assignment.Equal(len(names))
	var table []string
	for i, n := range names {
		pos := slices.Index(table, n)
		if pos < 0 {
			pos = len(table)
			table = append(table, n)
			tasks = append(tasks, assignment.Task{Name: n, Incarnation: 1, Address: n + ":1", Index: uint32(pos), Weight: 1, State: assignment.TaskRunning})
		}
		p.Add(starts[i], uint32(pos))
	}
	order := slices.Clone(table)
	slices.Sort(order)
	if !slices.Equal(order, table) {
		t.Fatalf("tasks %v are not in order", table)
	}
	a, err := assignment.Successor(nil, assignment.Header{Job: "chaos", Generation: g, Previous: previous, StoreID: 1}, tasks, p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func owner(a *assignment.Assignment, key string) string {
	return a.Lookup(assignment.KeyOf(key)).At(0).Name
}

// call is one of a client for a key.
func call(client, key string, begin, end time.Duration, err string) record.Call {
	return record.Call{Client: client, Key: key, Begin: begin, End: end, Err: err, Owned: err == "", Task: "x"}
}

func TestWhatIsJudged(t *testing.T) {
	first := even(t, 10, 0, "a", "b")
	key := "k"
	for i := 0; owner(first, key) != "a"; i++ {
		key = strings.Repeat("k", i+2)
	}
	second := even(t, 20, 10, "b", "b")
	newWorld := func() *World {
		return &World{Assignments: []Stored{{0, first}, {10 * s, second}}, Down: map[string]Spans{}, Apart: map[Pair]Spans{}}
	}
	phases := []Phase{{"all", s, 30 * s}}
	for _, c := range []struct {
		what         string
		spoil        func(*World)
		call         record.Call
		judged, lost int
	}{
		{"answered", func(*World) {}, call("c", key, 2*s, 3*s, ""), 1, 0},
		{"lost", func(*World) {}, call("c", key, 2*s, 3*s, "gone"), 1, 1},
		{"before the phase", func(*World) {}, call("c", key, s/2, 3*s, "gone"), 0, 0},
		{"owner died meanwhile", func(w *World) { w.Down["a"] = Spans{{3 * s, forever}} }, call("c", key, 2*s, 3*s, "gone"), 0, 0},
		{"owner was dead before", func(w *World) { w.Down["a"] = Spans{{0, s}} }, call("c", key, 2*s, 3*s, "gone"), 1, 1},
		{"another task is dead", func(w *World) { w.Down["b"] = Spans{{0, forever}} }, call("c", key, 2*s, 3*s, "gone"), 1, 1},
		{"cut off from the owner", func(w *World) { w.Apart[Pair{"c", "a"}] = Spans{{2 * s, 4 * s}} }, call("c", key, 3*s, 3*s, "gone"), 0, 0},
		{"another is cut off", func(w *World) { w.Apart[Pair{"d", "a"}] = Spans{{2 * s, 4 * s}} }, call("c", key, 3*s, 3*s, "gone"), 1, 1},
		{"caller stood still", func(w *World) { w.Down["c"] = Spans{{2 * s, 4 * s}} }, call("c", key, 3*s, 5*s, "gone"), 0, 0},
		{"owner dead, but it has another by now", func(w *World) { w.Down["a"] = Spans{{2 * s, forever}} }, call("c", key, 10*s, 11*s, "gone"), 1, 1},
		{"owner dead, and no other yet", func(w *World) { w.Down["a"] = Spans{{2 * s, forever}} }, call("c", key, 10*s-1, 11*s, "gone"), 0, 0},
		{"nothing is stored yet", func(w *World) { w.Assignments = nil }, call("c", key, 2*s, 3*s, "gone"), 0, 0},
	} {
		w := newWorld()
		c.spoil(w)
		r := Judge(w, phases, []record.Call{c.call})[0]
		if r.Judged != c.judged || r.Lost != c.lost || len(r.Examples) != c.lost {
			t.Errorf("%s: %d judged and %d lost, want %d and %d", c.what, r.Judged, r.Lost, c.judged, c.lost)
		}
	}
}

// What a client held was stored by then, whenever the judge heard of it.
func TestHearsay(t *testing.T) {
	first, second := even(t, 10, 0, "a", "b"), even(t, 20, 10, "b", "b")
	w := &World{Assignments: []Stored{{0, first}, {10 * s, second}}, Down: map[string]Spans{"a": {{0, forever}}}, Apart: map[Pair]Spans{}}
	key := "k"
	for i := 0; owner(first, key) != "a"; i++ {
		key = strings.Repeat("k", i+2)
	}
	held := call("d", key, 5*s, 6*s, "")
	held.Generation = 20
	r := Judge(w, []Phase{{"all", 0, 30 * s}}, []record.Call{call("c", key, 6*s, 7*s, "gone"), held})[0]
	if r.Judged != 2 || r.Lost != 1 {
		t.Errorf("%d judged and %d lost, want 2 and 1: generation 20 was there at 5 s", r.Judged, r.Lost)
	}
}

func TestFigures(t *testing.T) {
	first, second := even(t, 10, 0, "a", "b"), even(t, 20, 10, "b", "b")
	w := &World{Assignments: []Stored{{0, first}, {10 * s, second}}, Down: map[string]Spans{}, Apart: map[Pair]Spans{}}
	elsewhere := call("c", "k", 4*s, 6*s, "")
	elsewhere.Owned = false
	calls := []record.Call{call("c", "k", s, 2*s, ""), elsewhere, call("c", "k", 7*s, 15*s, "gone"), call("c", "k", 16*s, 17*s, "")}
	r := Judge(w, []Phase{{"all", 0, 20 * s}}, calls)[0]
	if r.Calls != 4 || r.Raw != .75 || r.Misrouted != 1./3 || r.Generations != 2 || r.WorstGap != 11 || r.Slowest != 2 || r.Routing != .75 {
		t.Errorf("%+v", r)
	}
	if r.Moved != .5 {
		t.Errorf("%.2f of the keyspace moved, want half", r.Moved)
	}
	if r.Left != .5 {
		t.Errorf("%.2f of the keyspace was a's, which left; want half", r.Left)
	}
	if text := Table([]Result{r}); !strings.Contains(text, "75.0000") {
		t.Errorf("no routing availability in %q", text)
	}
}

func TestRecords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for range 2 { // two processes, one after the other
		l, err := record.Append(file)
		if err != nil {
			t.Fatal(err)
		}
		c := call("c", "k", s, 2*s, "gone")
		l.Add(record.Line{Call: &c})
		l.Add(record.Line{Up: &record.Up{Tasks: []string{"a"}, At: s}})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, whole[:len(whole)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	lines, err := record.Read(file)
	if err != nil || len(lines) != 3 || lines[0].Call.Err != "gone" || lines[1].Up.Tasks[0] != "a" {
		t.Errorf("%d lines, %v; want the 3 whole ones", len(lines), err)
	}
	if err := os.WriteFile(file, append([]byte("{\"Call\": 3}\n"), whole...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := record.Read(file); err == nil {
		t.Error("nonsense was read")
	}
}

// A task that is stored as dead was down, or could not be heard, a short time ago.
func TestFalseDeaths(t *testing.T) {
	first := even(t, 10, 0, "a", "b")
	tasks := []assignment.Task{first.Task(0), first.Task(1)}
	tasks[0].State = assignment.TaskDead
	var p assignment.Placement
	p.Add(0, 1)
	second, err := assignment.Successor(first, assignment.Header{Job: "chaos", Generation: 20, Previous: 10, StoreID: 1}, tasks, p)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what  string
		world World
		want  int
	}{
		{"it ran", World{}, 1},
		{"another was down", World{Down: map[string]Spans{"b": {{0, forever}}}}, 1},
		{"it was down", World{Down: map[string]Spans{"a": {{90 * s, forever}}}}, 0},
		{"it was down long before", World{Down: map[string]Spans{"a": {{10 * s, 60 * s}}}}, 1},
		{"it had left", World{Down: map[string]Spans{"a": {{102 * s, forever}}}}, 0},
		{"it could not be heard", World{Mute: map[string]Spans{"a": {{80 * s, 99 * s}}}}, 0},
	} {
		c.world.Assignments = []Stored{{0, first}, {100 * s, second}, {101 * s, second}}
		r := Judge(&c.world, []Phase{{"before", 0, 90 * s}, {"all", 90 * s, 120 * s}}, nil)
		if r[0].FalseDeaths != 0 || r[1].FalseDeaths != c.want || len(r[1].Examples) != c.want {
			t.Errorf("%s: %d and %d false deaths, want 0 and %d", c.what, r[0].FalseDeaths, r[1].FalseDeaths, c.want)
		}
	}
}
