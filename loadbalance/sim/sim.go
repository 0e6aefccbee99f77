package sim

import (
	"errors"
	"fmt"
	"io"
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
	// Tasks is how many servers there are, of equal capacity.
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
	job := assignment.JobConfig{Name: "simulation", MinReplicas: c.MinReplicas, MaxReplicas: c.MaxReplicas, Balance: c.Balance}
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
	r := &replay{c: c, job: job, tasks: makeTasks(c.Tasks), decide: newDecider(c.Algorithm)}
	r.meter = meter{noise: c.Noise, parts: c.Parts, rng: rand.New(rand.NewPCG(c.Seed, 1)), seconds: float64(c.IntervalMS) / 1000}
	return r.play(src)
}

// play makes a first assignment, and plays all windows.
func (r *replay) play(src Source) (*Result, error) {
	if err := r.adopt(r.decide(decision{job: r.job, tasks: r.tasks})); err != nil {
		return nil, err
	}
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
	last        *int64 // when the last window began, nil before the first
}

// round plays one window: it is served as assigned, measured, and answered.
func (r *replay) round(w Window) (Round, error) {
	v := &r.windowLoads
	v.look(w)
	r.slice = v.sliceLoads(r.a.Columns().Starts, r.slice)
	out := Round{
		StartMS: w.StartMS, Requests: v.total, shifted: w.Shifted,
		Imbalance: imbalance(taskLoads(r.a, r.slice)),
		Floor:     Floor(w.Load, r.c.Tasks, r.job.MaxReplicas),
	}
	before := r.a
	in := decision{job: r.job, tasks: r.tasks, prev: r.a, loads: r.meter.measure(v, r.a), elapsed: r.job.Balance.Interval}
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
	if r.a != before {
		out.KeyChurn, out.LoadChurn, out.Moves = v.churn(before, r.a)
	}
	out.Splits, out.Merges = tally(did)
	r.slice = v.sliceLoads(r.a.Columns().Starts, r.slice)
	load := taskLoads(r.a, r.slice)
	out.Post, out.Rest = imbalance(load), v.rest(r.a, load)
	out.Slices, out.Replicas = r.a.NumSlices(), r.a.NumOwners()
	return out, nil
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
