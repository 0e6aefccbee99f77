package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// Window is the traffic of one round: what each key received in it.
type Window struct {
	StartMS int64
	// Keys are distinct and in order; Load, parallel, is in requests a window.
	Keys []assignment.SliceKey
	Load []float64
	// Shifted says that hot keys moved at the start of this window.
	Shifted bool
	// Running is how many of the tasks run, those that were there first; 0 is all.
	Running int
	// Able is what each task can carry, as Load; nil when it is as much as it gets.
	// Of what exceeds it nothing is measured.
	Able []float64
}

// Source yields the windows of a replay one after the other. The columns of a
// window are only valid until the next call and must not be changed.
type Source interface {
	// Next returns io.EOF after the last window.
	Next() (Window, error)
}

// Workload generates traffic; see Workloads for the names.
type Workload struct {
	// Name is one of a to h.
	Name string
	// Tasks is how many tasks there will be: some keys are hot relative to them.
	Tasks int
	// Requests a window, over all keys. Default 2,400,000: 8,000 a second for
	// five minutes, as in the Slicer paper, section 5.2.3.
	Requests float64
	// Rounds is how many windows there are. Default 288, a day of five minutes.
	Rounds int
	// IntervalMS is the length of a window. Default 300,000.
	IntervalMS int64
	Seed       uint64
}

// Workloads says what each workload is.
var Workloads = map[string]string{
	"a": "100 keys, power law 1.5; every fourth round other keys are the hot ones",
	"b": "10^6 keys, Zipf .99",
	"c": "10^5 keys, Zipf 1.2, each key's popularity drifting over the day",
	"d": "10^5 keys, uniform",
	"e": "one key has 40 % of all load, 10^5 others the rest",
	"f": "three middling hot keys a task together have 60 % of all load, 10^5 others the rest",
	"g": "one key climbs from .02 to 4 mean task loads and back, among 10^5 others",
	"h": "10^5 keys, Zipf .99, the hot ones wandering",
}

// shiftEvery is how many rounds workload a keeps its hot keys for.
const shiftEvery = 4

// generator makes the windows of a workload.
type generator struct {
	w     Workload
	rng   *rand.Rand
	keys  []assignment.SliceKey
	order []int     // by rank: place in keys
	base  []float64 // by rank: share of the load
	state []float64 // by rank: what the workload remembers
	load  []float64
	round int
	fixed bool    // load does not change from round to round
	speed float64 // of a drift; 0 is 1
}

// Open starts generating. It fails on an unknown name and on numbers that make
// no sense.
func (w Workload) Open() (Source, error) {
	if w.Requests == 0 {
		w.Requests = 2.4e6
	}
	if w.Rounds == 0 {
		w.Rounds = 288
	}
	if w.IntervalMS == 0 {
		w.IntervalMS = 300_000
	}
	switch {
	case Workloads[w.Name] == "":
		return nil, &assignment.FieldError{Field: "workload", Value: w.Name, Allowed: "a to h"}
	case w.Tasks < 1 || w.Tasks > assignment.MaxTasks:
		return nil, &assignment.FieldError{Field: "tasks", Value: w.Tasks, Allowed: fmt.Sprintf("1 to %d", assignment.MaxTasks)}
	case !(w.Requests > 0) || math.IsInf(w.Requests, 1):
		return nil, &assignment.FieldError{Field: "requests", Value: w.Requests, Allowed: "above 0"}
	case w.Rounds < 0:
		return nil, &assignment.FieldError{Field: "rounds", Value: w.Rounds, Allowed: "at least 1"}
	case w.IntervalMS < 0:
		return nil, &assignment.FieldError{Field: "interval", Value: w.IntervalMS, Allowed: "at least 1 ms"}
	}
	g := &generator{w: w, rng: rand.New(rand.NewPCG(w.Seed, uint64(w.Name[0])))}
	n := 100_000
	switch w.Name {
	case "a":
		n = 100
	case "b":
		n = 1_000_000
	}
	g.makeKeys(n)
	g.makeBase(n)
	return g, nil
}

// makeKeys gives each rank a key that depends on the seed.
func (g *generator) makeKeys(n int) {
	type ranked struct {
		key  assignment.SliceKey
		rank int
	}
	all := make([]ranked, n)
	for i := range all {
		all[i] = ranked{assignment.SliceKey(g.rng.Uint64() >> 1), i}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		switch {
		case a.key < b.key:
			return -1
		case a.key > b.key:
			return 1
		}
		return a.rank - b.rank
	})
	g.keys, g.order = make([]assignment.SliceKey, n), make([]int, n)
	for i, r := range all {
		if i > 0 && r.key <= g.keys[i-1] {
			r.key = g.keys[i-1] + 1
		}
		g.keys[i], g.order[r.rank] = r.key, i
	}
	g.load = make([]float64, n)
}

func (g *generator) makeBase(n int) {
	g.base = make([]float64, n)
	zipf := func(s float64) {
		for i := range g.base {
			g.base[i] = math.Pow(float64(i+1), -s)
		}
	}
	// hot gives the first m keys a share of all load, the others the rest.
	hot := func(m int, share float64) {
		for i := range g.base {
			if g.base[i] = (1 - share) / float64(n-m); i < m {
				g.base[i] = share / float64(m)
			}
		}
	}
	switch g.w.Name {
	case "a":
		zipf(1.5)
	case "b":
		zipf(.99)
	case "c":
		zipf(1.2)
		g.state = make([]float64, n)
		for i := range g.state {
			g.state[i] = g.rng.Float64() // phase within the day
		}
	case "d":
		hot(0, 0)
	case "e":
		hot(1, .4)
	case "f":
		hot(min(3*g.w.Tasks, n/2), .6)
	case "g":
		hot(0, 0)
	case "h":
		zipf(.99)
		g.state = make([]float64, 1000)
		for i := range g.state {
			g.state[i] = g.rng.NormFloat64()
		}
	}
	sum := 0.0
	for _, v := range g.base {
		sum += v
	}
	for i := range g.base {
		g.base[i] /= sum
	}
	g.fixed = g.w.Name == "b" || g.w.Name == "d" || g.w.Name == "e" || g.w.Name == "f"
}
