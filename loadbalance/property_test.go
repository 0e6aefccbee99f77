package loadbalance_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// anyRate draws loads, most of which make sense.
func anyRate() *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.Float64Range(0, 1000), rapid.Float64Range(0, 1), rapid.Just(0.),
		rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300, math.MaxFloat64, 1e-300}),
	)
}

func drawConfig(t *rapid.T) assignment.JobConfig {
	c := config(1, 1)
	c.MinReplicas = rapid.IntRange(1, 4).Draw(t, "min")
	c.MaxReplicas = rapid.IntRange(c.MinReplicas, 12).Draw(t, "max")
	c.LoadMetric = rapid.SampledFrom([]string{assignment.LoadRequests, assignment.LoadCPU}).Draw(t, "metric")
	c.Balance.MinSlicesPerTask = rapid.IntRange(1, 20).Draw(t, "fewest slices")
	c.Balance.MaxSlicesPerTask = rapid.IntRange(c.Balance.MinSlicesPerTask, 60).Draw(t, "most slices")
	budget := rapid.SampledFrom([]float64{-1, .001, .01, .01, .09, .09, .3, 1}) // -1 is none
	c.Balance.MergeBudget, c.Balance.MoveBudget = budget.Draw(t, "merge budget"), budget.Draw(t, "move budget")
	c.Balance.BandStop = rapid.SampledFrom([]float64{1, 1.01, 1.3}).Draw(t, "band stop")
	c.Balance.BandStart = c.Balance.BandStop + rapid.SampledFrom([]float64{0, .02, .5}).Draw(t, "band")
	c.Balance.Smoothing = rapid.SampledFrom([]float64{.01, .25, 1}).Draw(t, "smoothing")
	c.WarmUp = rapid.SampledFrom([]time.Duration{assignment.NoWarmUp, time.Millisecond, 30 * time.Second, time.Hour}).Draw(t, "warm-up")
	c.Balance.CPUThreshold = rapid.SampledFrom([]float64{-1, .25, 1}).Draw(t, "cpu threshold")
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

// drawTasks changes a fleet: tasks come, go, restart, drain, die.
func drawTasks(t *rapid.T, before []assignment.Task) []assignment.Task {
	states := rapid.SampledFrom([]assignment.TaskState{
		assignment.TaskRunning, assignment.TaskRunning, assignment.TaskRunning, assignment.TaskRunning,
		assignment.TaskRunning, assignment.TaskDraining, assignment.TaskDead, assignment.TaskStarting,
	})
	n := rapid.IntRange(0, 12).Draw(t, "tasks")
	tasks := fleet(n)
	for i := range tasks {
		if i < len(before) {
			tasks[i] = before[i]
		}
		tasks[i].State = states.Draw(t, "state")
		if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
			tasks[i].Incarnation++
		}
		tasks[i].Weight = rapid.SampledFrom([]float64{1, 1, 1, 2, 4, 1e-6, 1000, 1e6}).Draw(t, "weight")
	}
	return tasks
}

// drawAges draws how long tasks have been there, or that it is not known.
func drawAges(t *rapid.T, tasks int) []time.Duration {
	if !rapid.Bool().Draw(t, "ages") {
		return nil
	}
	return rapid.SliceOfN(rapid.SampledFrom([]time.Duration{-1, -1, -1, 0, time.Second, 29 * time.Second, 40 * time.Second, time.Hour}), tasks, tasks).Draw(t, "age")
}

// drawAnyFixed draws ranges that are fixed, mostly none.
func drawAnyFixed(t *rapid.T, tasks []assignment.Task) []loadbalance.Fixed {
	if len(tasks) == 0 || rapid.IntRange(0, 2).Draw(t, "fixed") > 0 {
		return nil
	}
	return drawFixed(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "fixed ranges"), 1)), tasks, zipf(30, 1, 1))
}

// drawLoads draws any loads for the slices of a, some keys hot beyond reason.
func drawLoads(t *rapid.T, a *assignment.Assignment) *loadbalance.Loads {
	if a == nil || rapid.IntRange(0, 9).Draw(t, "no loads") == 0 {
		return nil
	}
	n := a.NumSlices()
	if rapid.IntRange(0, 19).Draw(t, "wrong size") == 0 {
		n = rapid.IntRange(0, 3).Draw(t, "size")
	}
	seed := rapid.SliceOfN(anyRate(), 1, 8).Draw(t, "rates")
	l := &loadbalance.Loads{Slice: make([]float64, n), Task: make([]float64, a.NumTasks())}
	for i := range l.Slice {
		l.Slice[i] = seed[i%len(seed)]
	}
	if rapid.Bool().Draw(t, "parts") {
		l.Parts = rapid.IntRange(2, 4).Draw(t, "number of parts")
		l.Part = make([]float64, n*l.Parts)
		for i := range l.Part {
			l.Part[i] = seed[(i+3)%len(seed)]
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "hot keys") {
		l.Hot = append(l.Hot, assignment.HotKey{
			Key:  assignment.SliceKey(rapid.Uint64Range(0, 1<<63).Draw(t, "hot key")),
			Rate: anyRate().Draw(t, "hot rate"), Error: anyRate().Draw(t, "hot error"),
		})
	}
	if rapid.Bool().Draw(t, "cpu") {
		l.CPU = rapid.SliceOfN(anyRate(), a.NumTasks(), a.NumTasks()).Draw(t, "cpu")
	}
	return l
}

// check reports whether one round kept every promise.
func check(t *rapid.T, in loadbalance.Input, out loadbalance.Output) {
	live := 0
	for _, task := range in.Tasks {
		if task.State == assignment.TaskRunning {
			live++
		}
	}
	p := out.Placement
	if live == 0 {
		if len(p.Starts) != 0 || out.Changed {
			t.Fatalf("placed slices without a running task")
		}
		return
	}
	if len(p.Starts) == 0 {
		t.Fatalf("placed nothing with %d running tasks", live)
	}
	fewest, most := min(in.Config.MinReplicas, live), min(in.Config.MaxReplicas, live)
	if in.Fixed != nil {
		fewest = 1
	}
	for i := range p.Starts {
		owners := p.Range(i)
		if len(owners) < fewest || len(owners) > most {
			t.Fatalf("slice %d has %d owners, want %d to %d", i, len(owners), fewest, most)
		}
		for _, o := range owners {
			if s := in.Tasks[o].State; s != assignment.TaskRunning {
				t.Fatalf("slice %d is owned by a task that is %v", i, s)
			}
		}
	}
	before := 0
	if in.Prev != nil {
		before = in.Prev.NumSlices()
	}
	limit := max(before, in.Config.Balance.MaxSlicesPerTask*live) + 2*len(in.Fixed)
	if len(p.Starts) > limit {
		t.Fatalf("%d slices, want at most %d", len(p.Starts), limit)
	}
	for _, d := range out.Decisions {
		for _, x := range [...]float64{d.Benefit, d.KeyChurn, d.LoadChurn} {
			if !(x >= -1e-9) || math.IsInf(x, 0) { // false for NaN
				t.Fatalf("a decision with odd numbers: %+v", d)
			}
		}
	}
	if in.Prev == nil {
		return
	}
	told(t, in, out)
	churn, free := gained(in, p)
	if math.Abs(churn-out.Stats.KeyChurn) > 1e-9 {
		t.Fatalf("key churn is said to be %g, and is %g", out.Stats.KeyChurn, churn)
	}
	loaded := in.Loads != nil && len(in.Loads.Slice) == in.Prev.NumSlices() && !in.MembershipOnly &&
		slices.ContainsFunc(in.Loads.Slice, func(x float64) bool { return x > 1e-9 && !math.IsInf(x, 0) })
	if budget := max(in.Config.Balance.MergeBudget, 0) + max(in.Config.Balance.MoveBudget, 0); free > budget+1e-9 && (loaded || !loadbalance.MostNew(in)) {
		t.Fatalf("%g of the keyspace was reassigned without need, the budgets are %g", free, budget)
	}
}

// told reports whether each owner that a key gains or loses is named by a decision.
func told(t *rapid.T, in loadbalance.Input, out loadbalance.Output) {
	names := func(k assignment.SliceKey, who func(loadbalance.Decision) string) map[string]bool {
		m := make(map[string]bool)
		for _, d := range out.Decisions {
			if d.Slice.Contains(k) {
				m[who(d)] = true
			}
		}
		return m
	}
	next, err := assignment.Successor(nil, assignment.Header{Job: "job", Generation: 1}, slices.Clone(in.Tasks), out.Placement)
	if err != nil {
		t.Fatal(err)
	}
	starts := slices.Concat(out.Placement.Starts, in.Prev.Columns().Starts)
	slices.Sort(starts)
	for _, k := range slices.Compact(starts) {
		had, has := make(map[string]assignment.Task), make(map[string]assignment.Task)
		for o := range in.Prev.Lookup(k).All() {
			had[o.Name] = o
		}
		for o := range next.Lookup(k).All() {
			has[o.Name] = o
		}
		to := names(k, func(d loadbalance.Decision) string { return d.To })
		from := names(k, func(d loadbalance.Decision) string { return d.From })
		for n, o := range has {
			if !o.Same(had[n]) && !to[n] {
				t.Fatalf("%s gains key %s, and no decision says so: %+v", n, k, out.Decisions)
			}
		}
		for n, o := range had {
			if !o.Same(has[n]) && !from[n] {
				t.Fatalf("%s loses key %s, and no decision says so: %+v", n, k, out.Decisions)
			}
		}
	}
}

// gained is the share of the keyspace that got an owner which did not have it, and
// that of it where all owners from before might have stayed.
func gained(in loadbalance.Input, p assignment.Placement) (churn, free float64) {
	fewest := min(in.Config.MinReplicas, len(in.Tasks))
	for i, at := 0, 0; i < len(p.Starts); i++ {
		s := assignment.Slice{Start: p.Starts[i], End: assignment.KeyspaceEnd}
		if i+1 < len(p.Starts) {
			s.End = p.Starts[i+1]
		}
		for ; at < in.Prev.NumSlices() && in.Prev.Slice(at).Start < s.End; at++ {
			both, _ := s.Intersect(in.Prev.Slice(at))
			had := make(map[uint32]bool)
			stay := in.Prev.Replicas(at).Len() >= fewest && !slices.ContainsFunc(in.Fixed, func(f loadbalance.Fixed) bool { return f.Slice.Contains(both.Start) })
			for o := range in.Prev.Replicas(at).All() {
				pos := slices.IndexFunc(in.Tasks, func(t assignment.Task) bool { return t.Same(o) && t.State == assignment.TaskRunning })
				stay = stay && pos >= 0
				had[uint32(pos)] = true
			}
			if slices.ContainsFunc(p.Range(i), func(o uint32) bool { return !had[o] }) {
				churn += both.Fraction()
				if stay {
					free += both.Fraction()
				}
			}
			if in.Prev.Slice(at).End > s.End {
				break
			}
		}
	}
	return churn, free
}

// TestAnyHistory plays histories of any tasks and any loads.
func TestAnyHistory(t *testing.T) {
	used := new(loadbalance.Workspace) // by other rounds, of other histories
	rapid.Check(t, func(t *rapid.T) {
		var prev *assignment.Assignment
		var state *loadbalance.State
		var tasks []assignment.Task
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			tasks = drawTasks(t, tasks)
			in := loadbalance.Input{
				Published: rapid.Bool().Draw(t, "published"),
				Prev:      prev, Tasks: tasks, Ages: drawAges(t, len(tasks)), Config: drawConfig(t), Loads: drawLoads(t, prev),
				State: state, Fixed: drawAnyFixed(t, tasks),
				Elapsed:        time.Duration(rapid.Int64Range(-1, 1<<40).Draw(t, "elapsed")),
				MembershipOnly: rapid.IntRange(0, 4).Draw(t, "membership only") == 0,
			}
			out := loadbalance.Rebalance(in)
			check(t, in, out)
			in.Work = used
			again := loadbalance.Rebalance(in)
			if d := cmp.Diff(out.Placement, again.Placement); d != "" {
				t.Fatalf("the same input gave another placement:\n%s", d)
			}
			if d := cmp.Diff(out.Decisions, again.Decisions); d != "" {
				t.Fatalf("the same input gave other decisions:\n%s", d)
			}
			next := follow(t, prev, tasks, out)
			if prev != nil && out.Changed != changed(prev, next) {
				t.Fatalf("Changed is %v, which is wrong", out.Changed)
			}
			prev, state = next, again.State
		}
	})
}

// changed reports whether any slice or owner differs, by process.
func changed(a, b *assignment.Assignment) bool {
	if a.NumSlices() != b.NumSlices() {
		return true
	}
	for i := range a.NumSlices() {
		if a.Slice(i) != b.Slice(i) || a.Replicas(i).Len() != b.Replicas(i).Len() {
			return true
		}
		for x := range a.Replicas(i).All() {
			found := false
			for y := range b.Replicas(i).All() {
				found = found || x.Same(y)
			}
			if !found {
				return true
			}
		}
	}
	return false
}

// TestSettles checks that constant load, exactly measured, comes to rest: an
// assignment that never stops changing would oscillate.
func TestSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		published := rapid.Bool().Draw(t, "published")
		cfg := config(1, rapid.SampledFrom([]int{1, 3, 10}).Draw(t, "max"))
		n := rapid.IntRange(1, 8).Draw(t, "tasks")
		keys := zipf(rapid.SampledFrom([]int{1, 3, 30, 1000}).Draw(t, "keys"), rapid.Float64Range(0, 2).Draw(t, "skew"), 1000)
		tasks := fleet(n)
		out := loadbalance.Rebalance(loadbalance.Input{Tasks: tasks, Config: cfg, Published: published})
		a := follow(t, nil, tasks, out)
		churn := 0.
		for i := range 120 {
			out = loadbalance.Rebalance(loadbalance.Input{
				Prev: a, Tasks: tasks, Config: cfg, Published: published, Loads: measure(a, keys), Elapsed: cfg.Balance.Interval, State: out.State,
			})
			if i >= 100 {
				churn += out.Stats.KeyChurn
			}
			a = follow(t, a, tasks, out)
		}
		if churn > .01 {
			t.Fatalf("20 rounds of constant load still reassigned %g of the keyspace", churn)
		}
	})
}

// TestOwnershipsAreBounded lets replicas and slices grow as they like, by pins and by
// orders for more replicas, too: together they stay within what an assignment may hold.
func TestOwnershipsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		published := rapid.Bool().Draw(t, "published")
		cfg := config(1, 12)
		cfg.MinReplicas = rapid.IntRange(1, 3).Draw(t, "min")
		cfg.Balance.MinSlicesPerTask, cfg.Balance.MaxSlicesPerTask = 4, 40
		tasks := fleet(rapid.IntRange(3, 12).Draw(t, "tasks"))
		most := rapid.IntRange(40, 400).Draw(t, "most ownerships")
		keys := zipf(rapid.SampledFrom([]int{3, 30, 1000}).Draw(t, "keys"), rapid.Float64Range(0, 2).Draw(t, "skew"), 1000)
		var a *assignment.Assignment
		var out loadbalance.Output
		for i := range 12 {
			in := loadbalance.Input{Prev: a, Tasks: tasks, Config: cfg, Published: published, State: out.State, Elapsed: cfg.Balance.Interval}
			if a != nil {
				in.Loads = measure(a, keys)
			}
			if rapid.IntRange(0, 3).Draw(t, "more") == 0 {
				cfg.MinReplicas = rapid.IntRange(cfg.MinReplicas, 6).Draw(t, "new min")
				in.Config, in.Fixed = cfg, drawAnyFixed(t, tasks)
			}
			out = loadbalance.RebalanceWithin(in, most)
			if n := len(out.Placement.Owners); n > most {
				t.Fatalf("round %d: %d ownerships, at most %d are allowed", i, n, most)
			}
			a = follow(t, a, tasks, out)
		}
	})
}
