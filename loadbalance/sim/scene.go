package sim

import (
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Scene is a job whose load or whose tasks change, generated: what balancing does
// when it is not at rest. Scenes have rounds of 5 s and 20 tasks with 400 requests a
// second each unless About says otherwise.
type Scene struct {
	Name, About string
	// Tasks is how many there are at most, and Interval the length of a round.
	Tasks    int
	Interval time.Duration
	// Rounds is how many there are, and Skip how many of them, at the beginning, are
	// not to be counted: a job comes to rest in them.
	Rounds, Skip int
	// LoadMetric is the job's.
	LoadMetric string
	// Cost is that of Noise.
	Cost float64

	rate float64 // requests a second and task
	base string  // the workload that it is a variation of
}

// Scenes are those that can be replayed.
var Scenes = []Scene{
	scene(Scene{Name: "stationary", About: "Zipf .99, at rest"}),
	scene(Scene{Name: "low-rate", About: "5 requests/s a task, at rest", rate: 5}),
	scene(Scene{Name: "steps", About: "all traffic fourfold, every other minute"}),
	scene(Scene{Name: "pauses", About: "no traffic in one minute of three"}),
	scene(Scene{Name: "saturated", About: "tasks are used to .66, then one is half as fast; load in CPU", Skip: 24, Rounds: 84, LoadMetric: assignment.LoadCPU}),
	scene(Scene{Name: "flash-crowd", About: "each minute another key has three mean task loads; 150 requests/s a task", rate: 150}),
	scene(Scene{Name: "alternating", About: "half of the load is on 30 keys, and every other minute on 30 others"}),
	scene(Scene{Name: "scale", About: "four more tasks of 20 for three minutes of six", Tasks: 24, Rounds: 216}),
	scene(Scene{Name: "pareto", About: "what requests cost is Pareto distributed, 1.5; load as reported", LoadMetric: assignment.LoadCustom, Cost: 1.5}),
	scene(Scene{Name: "drift", About: "workload c three times as fast; 50 tasks, 160 requests/s each, rounds of 5 min", Tasks: 50, Interval: 5 * time.Minute, rate: 160, base: "c"}),
}

func scene(s Scene) Scene {
	set := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	set(&s.Tasks, 20)
	set(&s.Rounds, 144)
	set(&s.Skip, 36)
	if s.Interval == 0 {
		s.Interval = 5 * time.Second
	}
	if s.rate == 0 {
		s.rate = 400
	}
	if s.base == "" {
		s.base = "b"
	}
	if s.LoadMetric == "" {
		s.LoadMetric = assignment.LoadRequests
	}
	return s
}

// SceneNames are the names of Scenes.
func SceneNames() (names []string) {
	for _, s := range Scenes {
		names = append(names, s.Name)
	}
	return names
}

// FindScene finds one by its name. The error matches *assignment.FieldError.
func FindScene(name string) (Scene, error) {
	i := slices.IndexFunc(Scenes, func(s Scene) bool { return s.Name == name })
	if i < 0 {
		return Scene{}, &assignment.FieldError{Field: "scene", Value: name, Allowed: "one of " + strings.Join(SceneNames(), ", ")}
	}
	return Scenes[i], nil
}

// Config is that of a replay, but for the algorithm.
func (s Scene) Config(seed uint64) Config {
	n := DefaultNoise
	n.Poisson, n.Cost = true, s.Cost
	return Config{Tasks: s.Tasks, IntervalMS: s.Interval.Milliseconds(), LoadMetric: s.LoadMetric, Noise: n, Seed: seed}
}

// Open starts generating.
func (s Scene) Open(seed uint64) Source {
	w := Workload{Name: s.base, Tasks: s.usual(), Rounds: s.Rounds, IntervalMS: s.Interval.Milliseconds(), Seed: seed}
	w.Requests = s.rate * float64(w.Tasks) * s.Interval.Seconds()
	g := &generator{w: w, rng: rand.New(rand.NewPCG(seed, 's'))}
	if s.Name == "drift" {
		g.speed = 3
	}
	g.makeKeys(100_000)
	g.makeBase(100_000)
	return &sceneSource{Scene: s, g: g, load: make([]float64, len(g.keys))}
}

// usual is how many tasks there are most of the time.
func (s Scene) usual() int {
	if s.Name == "scale" {
		return s.Tasks - 4
	}
	return s.Tasks
}

// sceneSource makes the windows of a scene.
type sceneSource struct {
	Scene
	g    *generator
	load []float64
	hot  int // by rank: the key of a flash crowd
}

// Next implements Source.
func (s *sceneSource) Next() (Window, error) {
	g := s.g
	if g.round >= s.Rounds {
		return Window{}, io.EOF
	}
	start := time.Duration(g.round) * s.Interval
	w := Window{StartMS: start.Milliseconds(), Keys: g.keys, Load: s.load}
	if g.round == 0 || !g.fixed {
		g.fill()
	}
	copy(s.load, g.load)
	all := g.w.Requests
	mean := all / float64(s.usual())
	minute := int(start / time.Minute)
	switch s.Name {
	case "steps":
		scale(s.load, 1+3*s.during(start, 2*time.Minute, time.Minute, 2*time.Minute))
	case "pauses":
		scale(s.load, 1-s.during(start, 3*time.Minute, 2*time.Minute, 3*time.Minute))
	case "saturated":
		w.Able = slices.Repeat([]float64{mean / .66}, s.Tasks)
		if g.round >= s.Skip {
			w.Able[3] /= 2
		}
	case "flash-crowd":
		if start%time.Minute < s.Interval {
			s.hot = 1000 + g.rng.IntN(len(g.keys)-1000)
			w.Shifted = g.round > 0
		}
		share := 3 / float64(s.Tasks)
		scale(s.load, 1-share)
		s.load[g.order[s.hot]] += share * all
	case "alternating":
		scale(s.load, .5)
		for i := range 30 {
			s.load[g.order[1000+i+minute%2*30]] += .5 * all / 30
		}
	case "scale":
		if w.Running = s.usual(); minute/3%2 == 1 {
			w.Running = s.Tasks
		}
	}
	g.round++
	return w, nil
}

// during is the share of the window from start that falls between two times of a
// period. Times are half a window off, as changes come in the middle of one.
func (s *sceneSource) during(start, period, from, to time.Duration) float64 {
	const parts = 100
	in := 0
	for i := range parts {
		at := (start + s.Interval/2 + s.Interval*time.Duration(i)/parts) % period
		if at >= from && at < to {
			in++
		}
	}
	return float64(in) / parts
}

func scale(load []float64, by float64) {
	for i := range load {
		load[i] *= by
	}
}

// Motion is what a scene has come to, over the rounds that count.
type Motion struct {
	// OverFloor is the mean, and MaxOverFloor the largest, of imbalance / floor while
	// there was load.
	OverFloor    float64 `json:"over_floor"`
	MaxOverFloor float64 `json:"max_over_floor"`
	// KeyChurn and LoadChurn are shares a minute.
	KeyChurn  float64 `json:"key_churn_minute"`
	LoadChurn float64 `json:"load_churn_minute"`
	// Changed is the share of the rounds that changed slices or owners.
	Changed float64 `json:"changed_rounds"`
	// RecoveredMS has, in order, after how long the imbalance of each shift of hot keys
	// fell below 1.2 of the floor, or the next shift came, the round that saw it included.
	RecoveredMS []int64 `json:"recovered_ms,omitempty"`
	// Of a scene in which it is known what tasks can carry, WithinMS is after how long
	// the imbalance was below 1.05 of the floor for good, and Demand the largest load of a
	// task by what it can carry in the last round; 0 in others.
	WithinMS int64   `json:"within_ms"`
	Demand   float64 `json:"demand,omitempty"`
}

// Motion sums up a replay of the scene.
func (s Scene) Motion(r *Result) (m Motion) {
	rounds := r.Rounds[min(s.Skip, len(r.Rounds)):]
	loaded, interval := 0, s.Interval.Milliseconds()
	for i, x := range rounds {
		m.KeyChurn += x.KeyChurn
		m.LoadChurn += x.LoadChurn
		if x.Changed {
			m.Changed++
		}
		if x.Requests > 0 {
			loaded++
			over := x.Imbalance / x.Floor
			m.OverFloor += over
			m.MaxOverFloor = max(m.MaxOverFloor, over)
			if x.Demand > 0 && over > 1.05 {
				m.WithinMS = int64(i+1) * interval
			}
		}
		if x.shifted {
			m.RecoveredMS = append(m.RecoveredMS, recovered(rounds[i:])*interval)
		}
		m.Demand = x.Demand
	}
	slices.Sort(m.RecoveredMS)
	m.OverFloor /= float64(max(loaded, 1))
	n := float64(max(len(rounds), 1))
	perMinute := float64(time.Minute) / float64(s.Interval) / n
	m.KeyChurn *= perMinute
	m.LoadChurn *= perMinute
	m.Changed /= n
	return m
}

// recovered is how many rounds the shift at the first of them took.
func recovered(rounds []Round) (n int64) {
	for i, x := range rounds {
		if i > 0 && x.shifted {
			break
		}
		if n++; x.Post/x.Floor < 1.2 {
			break
		}
	}
	return n
}

// Recovered is the time after which a share of the shifts had recovered, 0 if there were none.
func (m *Motion) Recovered(share float64) time.Duration {
	n := len(m.RecoveredMS)
	if n == 0 {
		return 0
	}
	return time.Duration(m.RecoveredMS[max(int(math.Ceil(share*float64(n)))-1, 0)]) * time.Millisecond
}
