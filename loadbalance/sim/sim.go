package sim

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// Config says what to replay a source through.
type Config struct {
	// Algorithm is one of Algorithms.
	Algorithm string
	// Tasks is how many servers there are at most, of equal capacity.
	Tasks int
	// MinReplicas and MaxReplicas bound the tasks of a slice. Defaults 1 and 10,
	// the most of a job.
	MinReplicas, MaxReplicas int
	// Balance tunes weighted-move and published. Its interval is set to IntervalMS.
	Balance assignment.BalanceConfig
	// IntervalMS is the length of the source's windows: 100 to 3,600,000, as the
	// interval of jobs. Default 300,000.
	IntervalMS int64
	Noise      Noise
	// LoadMetric is the job's; requests by default.
	LoadMetric string
	// Parts is into how many parts of a slice load is metered. Default 8.
	Parts int
	// Seed of the noise.
	Seed uint64
	// Clock tells the time, to measure how long decisions take; nil leaves
	// decide_ms 0, so that equal replays give equal results.
	Clock func() time.Time
}

// MinInterval and MaxInterval bound the windows that can be replayed: those
// between which a job may be balanced.
const MinInterval, MaxInterval = 100 * time.Millisecond, time.Hour

func (c *Config) validInterval() bool {
	return c.IntervalMS >= MinInterval.Milliseconds() && c.IntervalMS <= MaxInterval.Milliseconds()
}

func (c *Config) job() (assignment.JobConfig, error) {
	job := assignment.JobConfig{Name: "simulation", MinReplicas: c.MinReplicas, MaxReplicas: c.MaxReplicas, LoadMetric: c.LoadMetric, Balance: c.Balance}
	if c.IntervalMS == 0 {
		c.IntervalMS = 300_000
	}
	if c.Parts == 0 {
		c.Parts = 8
	}
	if c.validInterval() {
		job.Balance.Interval = time.Duration(c.IntervalMS) * time.Millisecond
	}
	job = job.WithDefaults()
	switch {
	case !slices.Contains(Algorithms, c.Algorithm):
		return job, &assignment.FieldError{Field: "algorithm", Value: c.Algorithm, Allowed: fmt.Sprintf("one of %v", Algorithms)}
	case c.Tasks < 1 || c.Tasks > assignment.MaxTasks:
		return job, &assignment.FieldError{Field: "tasks", Value: c.Tasks, Allowed: fmt.Sprintf("1 to %d", assignment.MaxTasks)}
	case !c.validInterval():
		return job, &assignment.FieldError{Field: "interval", Value: fmt.Sprint(c.IntervalMS, " ms"), Allowed: fmt.Sprintf("%s to %s", MinInterval, MaxInterval)}
	case c.Parts < 1 || c.Parts > 64:
		return job, &assignment.FieldError{Field: "parts", Value: c.Parts, Allowed: "1 to 64"}
	case !(c.Noise.Slice >= 0 && c.Noise.Slice <= 1 && c.Noise.Task >= 0 && c.Noise.Task <= 1):
		return job, &assignment.FieldError{Field: "noise", Value: fmt.Sprint(c.Noise.Slice, " ", c.Noise.Task), Allowed: "0 to 1"}
	}
	return job, job.Validate()
}

// Run replays a source to its end. Errors are those of the config, which match
// *assignment.FieldError, and those of the source.
func Run(c Config, src Source) (*Result, error) {
	job, err := c.job()
	if err != nil {
		return nil, err
	}
	r := &replay{c: c, job: job, decide: newDecider(c.Algorithm)}
	r.meter = meter{noise: c.Noise, parts: c.Parts, rng: rand.New(rand.NewPCG(c.Seed, 1)), seconds: float64(c.IntervalMS) / 1000}
	return r.play(src)
}

// play plays all windows, from a first assignment on.
func (r *replay) play(src Source) (*Result, error) {
	res := &Result{Algorithm: r.c.Algorithm, Tasks: r.c.Tasks, Rounds: []Round{}}
	for {
		w, err := src.Next()
		if errors.Is(err, io.EOF) {
			res.Summary = Summarize(res.Rounds, r.c.Tasks)
			return res, nil
		}
		if err != nil {
			return nil, err
		}
		round, err := r.round(w)
		if err != nil {
			return nil, err
		}
		res.Rounds = append(res.Rounds, round)
	}
}

func makeTasks(n int) []assignment.Task {
	tasks := make([]assignment.Task, n)
	for i := range tasks {
		name := fmt.Sprintf("task-%d", i)
		tasks[i] = assignment.Task{Name: name, Incarnation: 1, Address: name + ":1", Index: uint32(i), Weight: 1, State: assignment.TaskRunning}
	}
	return tasks
}

// replay is a job under simulation.
type replay struct {
	c           Config
	job         assignment.JobConfig
	tasks       []assignment.Task
	decide      decider
	meter       meter
	windowLoads windowLoads
	a           *assignment.Assignment
	slice       []float64
	last        *int64  // when the last window began, nil before the first
	came        []int64 // when the tasks did, in ms of the source; nil if none came since
}

// round plays one window: it is served as assigned, measured, and answered.
func (r *replay) round(w Window) (Round, error) {
	v := &r.windowLoads
	v.look(w)
	was := r.a
	if err := r.join(w); err != nil {
		return Round{}, err
	}
	if was == nil {
		was = r.a
	}
	r.slice = v.sliceLoads(r.a.Columns().Starts, r.slice)
	out := Round{
		StartMS: w.StartMS, Requests: v.total, shifted: w.Shifted,
		Imbalance: imbalance(taskLoads(r.a, r.slice)),
		Floor:     Floor(w.Load, len(r.tasks), r.job.MaxReplicas),
	}
	for _, c := range v.carries(r.a) {
		out.Demand = max(out.Demand, c.demand)
	}
	in := decision{job: r.job, tasks: r.tasks, ages: r.ages(w.StartMS + r.c.IntervalMS), prev: r.a, loads: r.meter.measure(v, r.a), elapsed: r.job.Balance.Interval}
	in.loads.Window = r.job.Balance.Interval // of windows without traffic nothing was measured
	if r.last != nil {
		in.elapsed = time.Duration(w.StartMS-*r.last) * time.Millisecond
	}
	r.last = &w.StartMS
	var began time.Time
	if r.c.Clock != nil {
		began = r.c.Clock()
	}
	p, did := r.decide(in)
	if r.c.Clock != nil {
		out.DecideMS = float64(r.c.Clock().Sub(began).Nanoseconds()) / 1e6
	}
	if err := r.adopt(p, did); err != nil {
		return out, err
	}
	if r.a != was {
		out.KeyChurn, out.LoadChurn, out.Moves = v.churn(was, r.a)
		out.Changed = out.Moves > 0 || !slices.Equal(was.Columns().Starts, r.a.Columns().Starts)
	}
	out.Splits, out.Merges = tally(did)
	r.slice = v.sliceLoads(r.a.Columns().Starts, r.slice)
	load := taskLoads(r.a, r.slice)
	out.Post, out.Rest = imbalance(load), v.rest(r.a, load)
	out.Slices, out.Replicas = r.a.NumSlices(), r.a.NumOwners()
	return out, nil
}

// join makes the first assignment, and lets tasks come and go, which is answered at once.
func (r *replay) join(w Window) error {
	n := w.Running
	if n == 0 {
		n = r.c.Tasks
	}
	if r.a == nil {
		r.tasks = makeTasks(n)
		return r.adopt(r.decide(decision{job: r.job, tasks: r.tasks}))
	}
	if n == len(r.tasks) {
		return nil
	}
	if r.came == nil {
		r.came = slices.Repeat([]int64{math.MinInt64}, len(r.tasks))
	}
	r.came = r.came[:min(len(r.came), n)]
	for len(r.came) < n {
		r.came = append(r.came, w.StartMS)
	}
	r.tasks = makeTasks(n)
	for i, ms := range r.came {
		if ms != math.MinInt64 { // another process than the one of that name before
			r.tasks[i].Incarnation = uint64(ms) + 2
		}
	}
	in := decision{job: r.job, tasks: r.tasks, ages: r.ages(w.StartMS), prev: r.a, membership: true}
	return r.adopt(r.decide(in))
}

// ages are those of the tasks at some time, nil if all are as old as the job.
func (r *replay) ages(ms int64) (ages []time.Duration) {
	for _, came := range r.came {
		age := time.Duration(-1)
		if came != math.MinInt64 {
			age = time.Duration(ms-came) * time.Millisecond
		}
		ages = append(ages, age)
	}
	return ages
}

func tally(did []loadbalance.Decision) (splits, merges int) {
	for _, d := range did {
		switch d.Kind {
		case loadbalance.KindSplit:
			splits++
		case loadbalance.KindMerge:
			merges++
		}
	}
	return splits, merges
}

// adopt puts a placement into force; an empty one leaves things as they are.
func (r *replay) adopt(p assignment.Placement, _ []loadbalance.Decision) error {
	if len(p.Starts) == 0 {
		return nil
	}
	h := assignment.Header{Job: r.job.Name, Generation: 1}
	if r.a != nil {
		h.Generation = r.a.Generation() + 1
	}
	a, err := assignment.Successor(r.a, h, r.tasks, p)
	if err != nil {
		return fmt.Errorf("algorithm %s: %w", r.c.Algorithm, err)
	}
	r.a = a
	return nil
}
