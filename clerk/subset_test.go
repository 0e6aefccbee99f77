package clerk

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/loadbalance/subset"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// many are tasks with the indexes of the states given, in order; 0 is a hole.
func many(states ...assignment.TaskState) []assignment.Task {
	var tasks []assignment.Task
	for i, s := range states {
		if s != assignment.TaskUnknown {
			t := subscribertest.Task(fmt.Sprint("t", i), uint32(i))
			t.State = s
			tasks = append(tasks, t)
		}
	}
	return tasks
}

func running(n int) []assignment.Task {
	return many(slices.Repeat([]assignment.TaskState{assignment.TaskRunning}, n)...)
}

// indexesOf are the indexes of a subset's tasks.
func indexesOf(s *Subset) []int {
	var out []int
	for _, t := range s.Tasks() {
		out = append(out, int(t.Index))
	}
	return out
}

// TestSubsetIsTheAlgorithms: of any table of tasks the subset is what the algorithm
// says of the places that are not dead, and all that a Subset tells agrees.
func TestSubsetIsTheAlgorithms(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		states := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 9), func(n int) assignment.TaskState {
			return assignment.TaskState(min(n, 5) % 5) // half of them dead or holes
		}), 1, 80).Draw(r, "states")
		states = append(states, assignment.TaskRunning)
		tasks := many(states...)
		a := subscribertest.Equal(t, nil, header(1), tasks, 0)
		cfg := SubsetConfig{Size: rapid.IntRange(0, 90).Draw(r, "size")}
		c, err := newChooser(cfg, "me")
		if err != nil {
			r.Fatal(err)
		}
		has := rapid.IntRange(-1, 300).Draw(r, "index")
		s := c.choose(a, has)

		var present []int
		for _, x := range tasks {
			if x.State != assignment.TaskDead {
				present = append(present, int(x.Index))
			}
		}
		want := present
		if cfg.Size > 0 && cfg.Size < len(present) {
			b, err := subset.Present(present)
			if err != nil {
				r.Fatal(err)
			}
			index := has
			if has < 0 {
				index = provisionalIndex("me")
			}
			if want, err = (subset.Rocksteadier{}).Append(nil, subset.Shape{Backends: b, Size: cfg.Size}, index); err != nil {
				r.Fatal(err)
			}
			slices.Sort(want)
		}
		if got := indexesOf(s); !slices.Equal(got, want) {
			r.Fatalf("subset %v, want %v", got, want)
		}
		n := 0
		for pos, x := range a.Tasks() {
			if in := slices.Contains(want, int(x.Index)); s.Contains(pos) != in {
				r.Fatalf("Contains(%d) is %v", pos, !in)
			} else if in {
				n++
			}
		}
		if s.Len() != n || s.Contains(-1) || s.Contains(a.NumTasks()) || s.Contains(1<<40) {
			r.Fatalf("Len %d, want %d", s.Len(), n)
		}
		if index, known := s.Index(); known != (has >= 0) || known && index != has || s.Assignment() != a {
			r.Fatalf("index %d, %v", index, known)
		}
	})
}

// A task that starts or drains keeps its place; when one dies, the clients that had it
// get one other, and it back when it returns.
func TestSubsetWhenTasksChange(t *testing.T) {
	const clients, n, size = 50, 100, 10
	c, err := newChooser(SubsetConfig{Size: size}, "me")
	if err != nil {
		t.Fatal(err)
	}
	all := func(states ...assignment.TaskState) (subsets [][]int) {
		a := subscribertest.Equal(t, nil, header(1), many(states...), 0)
		for m := range clients {
			subsets = append(subsets, indexesOf(c.choose(a, m)))
		}
		return subsets
	}
	states := slices.Repeat([]assignment.TaskState{assignment.TaskRunning}, n)
	before := all(states...)
	states[7], states[8] = assignment.TaskDraining, assignment.TaskStarting
	if churn := subset.Compare(before, all(states...)); churn.Dropped != 0 || churn.Opened != 0 {
		t.Errorf("a drain and a start: %+v", churn)
	}
	states[7] = assignment.TaskDead
	had := subset.Connections(before, subset.Dense(n))[7]
	if churn := subset.Compare(before, all(states...)); had == 0 || churn.Dropped != had || churn.Opened != had || churn.MostDropped != 1 {
		t.Errorf("a death of one that %d had: %+v", had, churn)
	}
	states[7] = assignment.TaskRunning
	if churn := subset.Compare(before, all(states...)); churn.Dropped != 0 {
		t.Errorf("its return: %+v", churn)
	}
}

func TestSubsetConfigRefused(t *testing.T) {
	minus, big := -1, subset.MaxTasks
	for _, c := range []struct {
		cfg   SubsetConfig
		field string
		says  string
	}{
		{SubsetConfig{Size: -1}, "subset size", "0 (all tasks) to"},
		{SubsetConfig{Size: subset.MaxTasks + 1}, "subset size", "0 (all tasks) to"},
		{SubsetConfig{Index: &minus}, "subset index", "0 to"},
		{SubsetConfig{Index: &big}, "subset index", "0 to"},
	} {
		_, err := New(Config{Job: "job", Distributors: []string{"h:1"}, Subset: c.cfg})
		var fe *assignment.FieldError
		if !errors.As(err, &fe) || fe.Field != c.field || !strings.Contains(fe.Allowed, c.says) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}

func TestContainsDoesNotAllocate(t *testing.T) {
	c, _ := newChooser(SubsetConfig{Size: 20}, "me")
	s := c.choose(subscribertest.Equal(t, nil, header(1), running(1000), 0), 5)
	pos := 0
	if n := testing.AllocsPerRun(1000, func() { s.Contains(pos); pos++ }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A client goes by a provisional index until it is given one, and keeps that when
// the Distributor dies, and when it is started again.
func TestSubsetFollowsTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		cfg := config(n)
		cfg.ClientID, cfg.Subset.Size = "me", 4
		cfg.CacheFile = filepath.Join(t.TempDir(), "cache")
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if c.Subset() != nil {
			t.Error("a subset without an assignment")
		}
		dist, back := n.Start(distributor), n.Start(backup)
		a := subscribertest.Equal(t, nil, header(1), running(40), 0)
		dist.Put(a)
		back.Put(a)
		if err := c.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect := func(index int, known bool) {
			t.Helper()
			s := c.Subset()
			if i, k := s.Index(); i != index || k != known {
				t.Fatalf("index %d, known %v, want %d, %v", i, k, index, known)
			}
			if want, _ := (subset.Rocksteadier{}).Append(nil, subset.Shape{Backends: subset.Dense(40), Size: 4}, index); !slices.Equal(indexesOf(s), slices.Sorted(slices.Values(want))) {
				t.Fatalf("subset %v, want %v", indexesOf(s), want)
			}
		}
		expect(provisionalIndex("me"), false)
		changed := c.Changed()
		dist.Say(&slicerv1.Status{ClientIndex: new(uint32(17))})
		<-changed
		expect(17, true)
		before := c.Subset()
		dist.Say(&slicerv1.Status{ConvergedGeneration: 1}) // says nothing of it
		synctest.Wait()
		if c.Subset() != before {
			t.Error("worked out anew without a reason")
		}
		dist.Stop()
		for c.sub.State().Link.String() != "backup" {
			<-c.sub.StateChanged()
		}
		expect(17, true)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		back.Stop()
		for _, again := range []struct {
			id    string
			index *int
			want  int
			known bool
		}{{"me", nil, 17, true}, {"another", nil, provisionalIndex("another"), false}, {"me", new(3), 3, true}} {
			cfg.ClientID, cfg.Subset.Index = again.id, again.index
			if c, err = New(cfg); err != nil {
				t.Fatal(err)
			}
			expect(again.want, again.known)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestProvisionalIndexesDiffer(t *testing.T) {
	seen := make(map[int]bool)
	for i := range 1000 {
		index := provisionalIndex(fmt.Sprint("client-", i))
		if index < 0 || index >= subset.MaxTasks {
			t.Fatalf("index %d", index)
		}
		seen[index] = true
	}
	if len(seen) < 995 {
		t.Errorf("%d different ones of 1000", len(seen))
	}
}

func TestConnectionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(subscribertest.NewNetwork())
		r := prometheus.NewRegistry()
		cfg.Registerer = r
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for why, n := range map[OpenCause]int{OpenWarm: 26, OpenOnDemand: 3, numOpenCauses: 1} {
			for range n {
				c.ConnectionOpened(why)
			}
		}
		for why := range numCloseCauses + 1 {
			for range int(why) + 1 {
				c.ConnectionClosed(why)
			}
		}
		want := `
# HELP slicer_clerk_connections Connections to tasks that are open.
# TYPE slicer_clerk_connections gauge
slicer_clerk_connections{clerk="0",job="job"} 8
# HELP slicer_clerk_connections_closed_total Connections to tasks closed, by why.
# TYPE slicer_clerk_connections_closed_total counter
slicer_clerk_connections_closed_total{cause="failed",clerk="0",job="job"} 4
slicer_clerk_connections_closed_total{cause="idle",clerk="0",job="job"} 1
slicer_clerk_connections_closed_total{cause="inactive",clerk="0",job="job"} 6
slicer_clerk_connections_closed_total{cause="left_subset",clerk="0",job="job"} 2
slicer_clerk_connections_closed_total{cause="shutdown",clerk="0",job="job"} 5
slicer_clerk_connections_closed_total{cause="task_gone",clerk="0",job="job"} 3
# HELP slicer_clerk_connections_opened_total Connections to tasks opened, by why.
# TYPE slicer_clerk_connections_opened_total counter
slicer_clerk_connections_opened_total{cause="on_demand",clerk="0",job="job"} 3
slicer_clerk_connections_opened_total{cause="warm",clerk="0",job="job"} 26
`
		if err := testutil.GatherAndCompare(r, strings.NewReader(want), "slicer_clerk_connections",
			"slicer_clerk_connections_opened_total", "slicer_clerk_connections_closed_total"); err != nil {
			t.Error(err)
		}
		names := map[string]bool{}
		for why := range numCloseCauses + 1 {
			names[why.String()] = true
		}
		for why := range numOpenCauses + 1 {
			names[why.String()] = true
		}
		if len(names) != int(numCloseCauses)+int(numOpenCauses)+2 {
			t.Errorf("names %v", slices.Sorted(maps.Keys(names)))
		}
	})
}

func BenchmarkSubset(b *testing.B) {
	for _, n := range []int{200, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a := subscribertest.Equal(b, nil, header(1), running(n), 0)
			c, _ := newChooser(SubsetConfig{Size: 20}, "me")
			b.ReportAllocs()
			for b.Loop() {
				c.choose(a, 5)
			}
		})
	}
}
