package generate

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/cputest"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance"
)

// benchJob is a job of tasks with 100 slices and 400 requests a second each. What cells of
// the keyspace carry has a heavy tail; half of a tenth of the cells' load is on one key,
// and one task in twenty has a key as hot as a task or two.
type benchJob struct {
	cfg   assignment.JobConfig
	tasks []assignment.Task
	below []float64           // by cell: load of the cells before it, without keys
	keys  []assignment.HotKey // in order of key
	rng   *rand.Rand

	a     *assignment.Assignment
	state *loadbalance.State
	work  *loadbalance.Workspace
}

const benchParts = 8

func newBenchJob(n int) *benchJob {
	j := &benchJob{rng: rand.New(rand.NewPCG(uint64(n), 7)), work: new(loadbalance.Workspace)}
	j.cfg = assignment.JobConfig{Name: "job", Balance: assignment.BalanceConfig{MinSlicesPerTask: 100}}.WithDefaults()
	for i := range n {
		j.tasks = append(j.tasks, assignment.Task{Name: fmt.Sprintf("task-%d", i), Incarnation: 1, Address: fmt.Sprintf("10.0.%d.%d:80", i>>8, i&255),
			Index: uint32(i), Weight: 1, State: assignment.TaskRunning})
	}
	starts := assignment.Equal(100 * n)
	mean := 4 / math.Exp(.5) // of a cell that is 1 in the median
	j.below = append(j.below, 0)
	for i, start := range starts {
		load := mean * math.Exp(j.rng.NormFloat64())
		if i%10 == 0 {
			j.keys = append(j.keys, assignment.HotKey{Key: start + assignment.SliceKey(j.rng.Uint64N(1<<30)), Rate: load / 2})
			load /= 2
		}
		if i%2000 == 1 {
			j.keys = append(j.keys, assignment.HotKey{Key: start + 99, Rate: 400 * (1 + j.rng.Float64())})
		}
		j.below = append(j.below, j.below[i]+load)
	}
	return j
}

// until is the load below a key, without keys.
func (j *benchJob) until(k assignment.SliceKey) float64 {
	n := len(j.below) - 1
	x := float64(k) / float64(assignment.KeyspaceEnd) * float64(n)
	i := min(int(x), n-1)
	return j.below[i] + (x-float64(i))*(j.below[i+1]-j.below[i])
}

// count draws the rate that is measured over a round where rate is to be expected.
func (j *benchJob) count(rate float64) float64 {
	const seconds = 5
	mean := rate * seconds
	if mean > 30 {
		return max(math.Round(mean+math.Sqrt(mean)*j.rng.NormFloat64()), 0) / seconds
	}
	n, p, limit := 0.0, j.rng.Float64(), math.Exp(-mean)
	for p > limit {
		n++
		p *= j.rng.Float64()
	}
	return n / seconds
}

// reports are what all tasks report of a round.
func (j *benchJob) reports() []loadbalance.Report {
	owned := make([]int, len(j.tasks))
	for _, o := range j.a.Columns().Owners {
		owned[o]++
	}
	out := make([]loadbalance.Report, len(j.tasks))
	for i, t := range j.tasks {
		out[i] = loadbalance.Report{Task: t.Name, Incarnation: t.Incarnation, Load: assignment.Load{
			Generation: j.a.Generation(), Window: 5 * time.Second, Parts: benchParts,
			Ranges: make([]assignment.Slice, 0, owned[i]), Rate: make([]float64, 0, owned[i]), PartRate: make([]float64, 0, benchParts*owned[i]),
		}}
	}
	keys := j.keys
	for i := range j.a.NumSlices() {
		s, r := j.a.Slice(i), j.a.Replicas(i)
		of := 1 / float64(r.Len())
		rates := make([]float64, r.Len())
		last := j.until(s.Start)
		for p := range uint64(benchParts) {
			end := s.Start + assignment.SliceKey(s.Width()/benchParts*(p+1)+s.Width()%benchParts*(p+1)/benchParts)
			below := j.until(end)
			load := below - last
			last = below
			for len(keys) > 0 && keys[0].Key < end {
				for k := range r.Len() {
					l := &out[r.Position(k)].Load
					l.Hot = append(l.Hot, assignment.HotKey{Key: keys[0].Key, Rate: keys[0].Rate * of})
				}
				load += keys[0].Rate
				keys = keys[1:]
			}
			for k := range r.Len() {
				l := &out[r.Position(k)].Load
				x := j.count(load * of)
				rates[k] += x
				l.PartRate = append(l.PartRate, x)
			}
		}
		for k := range r.Len() {
			l := &out[r.Position(k)].Load
			l.Ranges, l.Rate, l.Total = append(l.Ranges, s), append(l.Rate, rates[k]), l.Total+rates[k]
		}
	}
	for i := range out {
		hot := out[i].Load.Hot
		slices.SortFunc(hot, func(x, y assignment.HotKey) int {
			return cmp.Or(cmp.Compare(y.Rate, x.Rate), cmp.Compare(x.Key, y.Key))
		})
		out[i].Load.Hot = hot[:min(len(hot), 64)]
	}
	return out
}

// plan is the next round.
func (j *benchJob) plan(reports []loadbalance.Report) *Plan {
	p := &Plan{Why: ReasonLoad, Work: j.work, tasks: j.tasks, job: "job", storeID: 7, wall: epoch.Add(time.Hour), reports: reports,
		in: loadbalance.Input{Prev: j.a, Tasks: j.tasks, Config: j.cfg, State: j.state, Elapsed: j.cfg.Balance.Interval}}
	if j.a == nil {
		p.Why = ReasonFirst
	}
	return p
}

// follow takes what a round has decided.
func (j *benchJob) follow(tb testing.TB, d *Planned) {
	if d.Err != nil {
		tb.Fatal(d.Err)
	}
	if j.state = d.Out.State; d.Next != nil {
		j.a = d.Next
	}
}

// usage is the processor time and the memory that something takes, over all its turns.
type usage struct {
	turns int
	cpu   time.Duration
	bytes uint64
	heap  uint64 // the most that there can have been at a time
}

// run runs f once more. What was done before it leaves no garbage to it.
func (u *usage) run(tb testing.TB, f func()) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := cputest.Own()
	f()
	u.cpu += cputest.Own() - began
	runtime.ReadMemStats(&after)
	u.turns++
	u.bytes += after.TotalAlloc - before.TotalAlloc
	u.heap = max(u.heap, before.HeapAlloc+after.TotalAlloc-before.TotalAlloc)
}

func (u *usage) report(b *testing.B, name string) {
	b.ReportMetric(u.cpu.Seconds()*1000/float64(u.turns), name+"-ms")
}

// encode makes of a round what is sent to Distributors.
func encode(tb testing.TB, prev *assignment.Assignment, d *Planned) {
	var err error
	switch {
	case d.Next == nil:
	case prev == nil:
		_, err = wire.WholeFrame(d.Next)
	default:
		_, err = wire.DeltaFrame(prev, d.Next)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkWholeRound is a round of a job from the tasks' reports to the bytes that
// Distributors are sent: the first of all, the first with loads, and one in steady state,
// with what of it measuring, deciding and encoding take. All is processor time, garbage
// collection included; MB/op is what is allocated, and MB that and what was there before, as
// the reports and the assignment in force.
func BenchmarkWholeRound(b *testing.B) {
	for _, kind := range []string{"first", "loads", "steady"} {
		for _, n := range []int{100, 1000, 10_000} {
			b.Run(fmt.Sprintf("%s/tasks=%d", kind, n), func(b *testing.B) { benchRound(b, kind, n) })
		}
	}
	b.Run("steady/tasks=30000", func(b *testing.B) { benchRound(b, "steady", 30_000) })
}

func benchRound(b *testing.B, kind string, n int) {
	j := newBenchJob(n)
	if kind != "first" {
		j.follow(b, j.plan(nil).Run())
	}
	if kind == "steady" {
		for range steadyAfter {
			j.follow(b, j.plan(j.reports()).Run())
		}
	}
	var all, measured, decided, encoded usage
	var decisions, written int
	began := *j
	for b.Loop() {
		b.StopTimer()
		var reports []loadbalance.Report
		if kind != "first" {
			reports = j.reports()
			var loads *loadbalance.Loads
			measured.run(b, func() { loads = loadbalance.Measure(j.a, reports) })
			in := j.plan(nil).in
			in.Loads, in.Work = loads, j.work
			decided.run(b, func() { loadbalance.Rebalance(in) })
		}
		p := j.plan(reports)
		var d *Planned
		all.run(b, func() {
			b.StartTimer()
			d = p.Run()
			b.StopTimer()
		})
		encoded.run(b, func() { b.StartTimer(); encode(b, j.a, d); b.StopTimer() })
		decisions += len(d.Out.Decisions)
		if d.Next != nil {
			written++
		}
		if j.follow(b, d); kind != "steady" {
			j.a, j.state = began.a, began.state
		}
		b.StartTimer()
	}
	turns := float64(all.turns)
	if kind != "first" {
		measured.report(b, "measure")
		decided.report(b, "decide")
	}
	encoded.report(b, "encode")
	all.cpu += encoded.cpu
	all.report(b, "cpu")
	b.ReportMetric(float64(all.bytes+encoded.bytes)/1e6/turns, "MB/op")
	b.ReportMetric(float64(decisions)/turns, "decisions")
	b.ReportMetric(float64(written)/turns, "written")
	b.ReportMetric(float64(max(all.heap, encoded.heap))/1e6, "MB")
}

// steadyAfter is how many rounds it takes until nothing large is left to do.
const steadyAfter = 12
