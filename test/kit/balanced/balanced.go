// Package balanced makes assignments as a job's assigner does, for benchmarks and tests: slices
// that rounds of the balancer have split, merged, moved, replicated and cut out for hot keys.
// Random slices are unlike them: their starts are in other places, they compress no better than
// noise, and none is crowded.
package balanced

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// first is the generation that a job begins with.
const first assignment.Generation = 1_760_000_000_000

// rounds is after how many rounds with loads a job is handed out.
const rounds = 4

// Job is a job of tasks with some 100 slices and 400 requests/s each. What cells of the keyspace
// carry has a heavy tail; one cell in ten has a key with half of its load, and one task in twenty
// a key as hot as a task or two. From round to round one cell in twenty comes to carry something
// else. Equal arguments give equal jobs. It is not safe for concurrent use.
type Job struct {
	cfg   assignment.JobConfig
	tasks []assignment.Task
	cells []cell
	below []float64           // by cell: load of the cells before it, without keys
	keys  []assignment.HotKey // in order of key
	rng   *rand.Rand

	a     *assignment.Assignment
	state *loadbalance.State
	work  loadbalance.Workspace
}

// cell is a part of the keyspace; all have the same width.
type cell struct {
	load float64 // without keys
	keys [2]assignment.HotKey
}

// New makes a job of about as many slices, at least 10, and has it balanced.
func New(tb testing.TB, n int) *Job {
	tb.Helper()
	return newJob(tb, n, max(n/100, 2), min(n/2, 100))
}

// NewOf makes a job of so many tasks, at least 2, with about n slices, at most a fifth more: 5 to
// 800 a task.
func NewOf(tb testing.TB, n, tasks int) *Job {
	tb.Helper()
	return newJob(tb, n, tasks, n/tasks)
}

func newJob(tb testing.TB, n, tasks, each int) *Job {
	tb.Helper()
	j := &Job{rng: rand.New(rand.NewPCG(uint64(n), 7))}
	// The balancer makes up to half as many more than the least.
	j.cfg = assignment.JobConfig{Name: "job", Balance: assignment.BalanceConfig{MinSlicesPerTask: max(each*4/5, 1), MaxSlicesPerTask: each * 6 / 5}}.WithDefaults()
	for i := range tasks {
		j.tasks = append(j.tasks, assignment.Task{
			Name: fmt.Sprintf("cache-%d", i), Incarnation: uint64(i+1) * 0x9e3779b97f4a7c15, Address: fmt.Sprintf("10.%d.%d.%d:8080", i>>16, i>>8&255, i&255),
			Zone: "zone-a", Index: uint32(i), Weight: 1, State: assignment.TaskRunning,
		})
	}
	j.cells = make([]cell, n*9/10+1)
	for i := range j.cells {
		j.draw(i)
	}
	for range rounds + 1 {
		j.Round(tb)
	}
	return j
}

// Assignment is the newest.
func (j *Job) Assignment() *assignment.Assignment { return j.a }

// Round lets the balancer make the next assignment, if it finds something to do.
func (j *Job) Round(tb testing.TB) *assignment.Assignment {
	tb.Helper()
	in := loadbalance.Input{Prev: j.a, Tasks: j.tasks, Config: j.cfg, Elapsed: j.cfg.Balance.Interval, State: j.state, Work: &j.work}
	h := assignment.Header{Job: j.cfg.Name, StoreID: 7, Generation: first}
	if j.a != nil {
		in.Loads = j.loads()
		h.Generation = j.a.Generation() + assignment.Generation(j.cfg.Balance.Interval/time.Millisecond)
	}
	out := loadbalance.Rebalance(in)
	if j.state = out.State; !out.Changed {
		return j.a
	}
	a, err := assignment.Successor(j.a, h, slices.Clone(j.tasks), out.Placement)
	if err != nil {
		tb.Fatal(err)
	}
	j.a = a
	return a
}

// draw lets a cell carry something else.
func (j *Job) draw(i int) {
	width := float64(assignment.KeyspaceEnd-1) / float64(len(j.cells))
	c := cell{load: 400 * float64(len(j.tasks)) / float64(len(j.cells)) * math.Exp(j.rng.NormFloat64()-.5)}
	at := assignment.SliceKey(width * (float64(i) + j.rng.Float64()))
	if j.rng.IntN(10) == 0 {
		c.load /= 2
		c.keys[0] = assignment.HotKey{Key: at, Rate: c.load}
	}
	if j.rng.IntN(2000) == 0 {
		c.keys[1] = assignment.HotKey{Key: at + 1, Rate: 400 * (1 + j.rng.Float64())}
	}
	j.cells[i] = c
}

// drift goes on to what the next round measures.
func (j *Job) drift() {
	for range len(j.cells) / 20 {
		j.draw(j.rng.IntN(len(j.cells)))
	}
	j.below, j.keys = append(j.below[:0], 0), j.keys[:0]
	for i, c := range j.cells {
		j.below = append(j.below, j.below[i]+c.load)
		for _, k := range c.keys {
			if k.Rate > 0 {
				j.keys = append(j.keys, k)
			}
		}
	}
}

// until is the load below a key, without hot keys.
func (j *Job) until(k assignment.SliceKey) float64 {
	n := len(j.below) - 1
	x := float64(k) / float64(assignment.KeyspaceEnd) * float64(n)
	i := min(int(x), n-1)
	return j.below[i] + (x-float64(i))*(j.below[i+1]-j.below[i])
}

// counted draws the rate that a round measures where rate is to be expected.
func (j *Job) counted(rate float64) float64 {
	seconds := j.cfg.Balance.Interval.Seconds()
	mean := rate * seconds
	return max(math.Round(mean+math.Sqrt(mean)*j.rng.NormFloat64()), 0) / seconds
}

// loads are what a round measures.
func (j *Job) loads() *loadbalance.Loads {
	const parts = 8
	j.drift()
	n := j.a.NumSlices()
	l := &loadbalance.Loads{Slice: make([]float64, n), Task: make([]float64, len(j.tasks)), Parts: parts, Part: make([]float64, 0, parts*n)}
	keys := j.keys
	for i := range n {
		s, r := j.a.Slice(i), j.a.Replicas(i)
		last := j.until(s.Start)
		for p := range uint64(parts) {
			end := s.Start + assignment.SliceKey(s.Width()/parts*(p+1)+s.Width()%parts*(p+1)/parts)
			below := j.until(end)
			load := below - last
			last = below
			for len(keys) > 0 && keys[0].Key < end {
				load += keys[0].Rate
				keys = keys[1:]
			}
			load = j.counted(load)
			l.Part = append(l.Part, load)
			l.Slice[i] += load
		}
		for k := range r.Len() {
			l.Task[r.Position(k)] += l.Slice[i] / float64(r.Len())
		}
	}
	hot := slices.Clone(j.keys)
	slices.SortFunc(hot, func(x, y assignment.HotKey) int {
		return cmp.Or(cmp.Compare(y.Rate, x.Rate), cmp.Compare(x.Key, y.Key))
	})
	l.Hot = hot[:min(len(hot), len(j.tasks))]
	return l
}
