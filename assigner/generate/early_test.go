package generate

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// watchedJob is a job whose tasks report each second, each at a time of its own, and whose
// generations are in force at once.
type watchedJob struct {
	c     *Core
	at    time.Duration
	rng   *rand.Rand
	tasks []assignment.Task
	rate  float64 // requests a second and task
	cost  func() float64
	keys  []assignment.SliceKey // heaviest first
	below []float64             // by key: the share of all requests that go to those before it
	hot   assignment.SliceKey   // that has as many requests more as hotRate says
	more  float64               // requests a second for hot
	all   float64               // by which all rates are multiplied

	sequence uint64
	counted  []time.Duration // by task: until when its requests have been counted
	a        *assignment.Assignment
	owned    [][]ownedKey // by task: its keys, in ownedIn
	ownedIn  *assignment.Assignment
	rounds   []Round
	entries  []*store.Entry
}

// ownedKey is a key by its number, and the slice that it is in.
type ownedKey struct{ key, slice int }

const watchStep = 50 * time.Millisecond

func newWatchedJob(seed uint64, n int, rate float64) *watchedJob {
	j := &watchedJob{c: New(Config{ID: "me"}, "job", at(0)), rng: rand.New(rand.NewPCG(seed, 3)), rate: rate, all: 1, cost: func() float64 { return 1 }}
	const keys = 20_000
	sum := 0.0
	for i := range keys {
		j.keys = append(j.keys, assignment.KeyOf(fmt.Sprint("key", seed, i)))
		j.below = append(j.below, sum)
		sum += math.Pow(float64(i+1), -.99)
	}
	for i := range j.below {
		j.below[i] /= sum
	}
	j.c.Next(at(0))
	cfg := assignment.JobConfig{Name: "job", LoadMetric: assignment.LoadCustom}.WithDefaults()
	j.c.Loaded(at(0), Loaded{Exists: true, Job: store.Job{Config: cfg, Version: 1}, StoreID: 7})
	j.c.Preferred(at(0), "me")
	j.c.Attach(at(0), 1, "d")
	for i := range n {
		j.tasks = append(j.tasks, assignment.Task{Name: fmt.Sprint("t", i), Incarnation: 1, Address: "x:1", Index: uint32(i), Weight: 1})
		j.counted = append(j.counted, 0)
	}
	for k, t := range j.tasks {
		j.report(k == 0, Report{Report: membership.Report{Task: t, Said: true, State: assignment.TaskRunning}})
	}
	return j
}

func (j *watchedJob) report(complete bool, r Report) {
	j.sequence++
	r.Sequence = j.sequence
	j.c.Reports(at(j.at), 1, complete, []Report{r})
}

// share is the share of all requests that go to a key.
func (j *watchedJob) share(i int) float64 {
	if i+1 < len(j.below) {
		return j.below[i+1] - j.below[i]
	}
	return 1 - j.below[i]
}

// draw is how many requests come when mean are to be expected, not many.
func (j *watchedJob) draw(mean float64) (n int) {
	p := j.rng.Float64()
	if p <= 1-mean { // which is at most exp(-mean); most keys have next to nothing
		return 0
	}
	for least := math.Exp(-mean); p > least; n++ {
		p *= j.rng.Float64()
	}
	return n
}

// load is what a task reports of the time since it last did.
func (j *watchedJob) load(k int) *assignment.Load {
	if j.a != j.ownedIn {
		j.ownedIn, j.owned = j.a, make([][]ownedKey, len(j.tasks))
		for i, key := range j.keys {
			for t := range j.a.Lookup(key).All() {
				j.owned[t.Index] = append(j.owned[t.Index], ownedKey{i, j.a.Find(key)})
			}
		}
	}
	l := &assignment.Load{Generation: j.a.Generation(), Window: j.at - j.counted[k], Parts: 1}
	j.counted[k] = j.at
	secs := l.Window.Seconds()
	pos, _ := j.a.Position(j.tasks[k].Name)
	of := make([]int, j.a.NumSlices()) // by slice that is the task's: which of its ranges
	for i := range j.a.NumSlices() {
		if j.a.Replicas(i).Has(pos) {
			of[i] = len(l.Ranges)
			l.Ranges, l.Rate = append(l.Ranges, j.a.Slice(i)), append(l.Rate, 0)
		}
	}
	come := func(key assignment.SliceKey, i int, rate float64) {
		x := 0.0
		for rate *= secs / float64(j.a.Replicas(i).Len()); rate > 0; rate -= 100 {
			for range j.draw(min(rate, 100)) {
				x += j.cost() / secs
			}
		}
		l.Rate[of[i]] += x
		l.Total += x
		if x > 2 {
			l.Hot = append(l.Hot, assignment.HotKey{Key: key, Rate: x})
		}
	}
	for _, o := range j.owned[k] {
		come(j.keys[o.key], o.slice, j.share(o.key)*j.all*j.rate*float64(len(j.tasks)))
	}
	if j.a.Lookup(j.hot).Has(pos) {
		come(j.hot, j.a.Find(j.hot), j.more)
	}
	l.Hot = slices.DeleteFunc(l.Hot, func(h assignment.HotKey) bool { return h.Rate < .005*l.Total })
	slices.SortFunc(l.Hot, func(a, b assignment.HotKey) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Key, b.Key))
	})
	return l
}

// pass lets time pass until f says that it is enough.
func (j *watchedJob) pass(t *testing.T, until time.Duration, f func() bool) {
	per := time.Second / watchStep
	for j.at < until && (f == nil || !f()) {
		j.at += watchStep
		for k, task := range j.tasks {
			if j.a != nil && time.Duration(k)*per/time.Duration(len(j.tasks)) == j.at/watchStep%per && j.at > j.counted[k] {
				j.report(false, Report{Load: j.load(k), Report: membership.Report{Task: task, Said: true, State: assignment.TaskRunning}})
			}
		}
		j.act(t)
	}
}

func (j *watchedJob) act(t *testing.T) {
	for {
		a, _ := j.c.Next(at(j.at))
		switch a := a.(type) {
		case *Plan:
			j.c.Planned(at(j.at), a.Run())
		case Write:
			j.a = a.Next
			j.entries = append(j.entries, a.Entry)
			j.c.Written(at(j.at), nil)
		case Load:
			j.c.Loaded(at(j.at), Loaded{Exists: true, Job: j.c.store.job, StoreID: 7, Assignment: j.a, Overrides: j.c.overrides.inForce})
		case nil:
			j.rounds = append(j.rounds, j.c.Outputs().Rounds...)
			return
		default:
			t.Fatalf("action %v", a)
		}
	}
}

func (j *watchedJob) early() (n int) {
	for _, r := range j.rounds {
		if r.Why == ReasonEarly {
			n++
		}
	}
	return n
}

// imbalance is the largest of the tasks' true loads over their mean.
func (j *watchedJob) imbalance() float64 {
	load := make([]float64, len(j.tasks))
	total := 0.0
	give := func(key assignment.SliceKey, x float64) {
		r := j.a.Lookup(key)
		for k := range r.Len() {
			load[r.At(k).Index] += x / float64(r.Len())
		}
		total += x
	}
	for i, key := range j.keys {
		give(key, j.share(i)*j.rate*float64(len(j.tasks)))
	}
	give(j.hot, j.more)
	return slices.Max(load) / total * float64(len(load))
}

// A job at rest has no early round in six minutes, whatever its requests cost, nor one
// that all of the load comes and goes in. loadbalance.TestDeviation has twenty minutes of
// the rule alone.
func TestNoEarlyRoundAtRest(t *testing.T) {
	for _, c := range []struct {
		name string
		cost func(rng *rand.Rand) float64
		step float64
	}{
		{"counted", func(*rand.Rand) float64 { return 1 }, 1},
		{"Pareto 1.5", func(rng *rand.Rand) float64 { return math.Pow(rng.Float64(), -1/1.5) / 3 }, 1},
		{"steps", func(*rand.Rand) float64 { return 1 }, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newWatchedJob(1, 20, 400/c.step)
			j.cost = func() float64 { return c.cost(j.rng) }
			for m := range 6 {
				j.all = 1
				if m%2 == 1 {
					j.all = c.step
				}
				j.pass(t, time.Duration(m+1)*time.Minute+137*time.Duration(m)*time.Millisecond, nil)
			}
			if n := j.early(); n > 0 {
				t.Errorf("%d early rounds: %v", n, j.rounds)
			}
			t.Logf("%d rounds", len(j.rounds))
		})
	}
}

// A key that was nothing has three mean loads from one moment to the next: tasks are within
// 1.2 of the mean again long before the interval has passed, and the history says why.
func TestEarlyRound(t *testing.T) {
	j := newWatchedJob(2, 20, 150)
	j.pass(t, 2*time.Minute, nil)
	var took []time.Duration
	for n := range 30 {
		j.hot, j.more = assignment.KeyOf(fmt.Sprint("hot", n)), 3*150
		from := j.at
		j.pass(t, from+time.Minute, func() bool { return j.imbalance() < 1.2 })
		took = append(took, j.at-from)
		j.pass(t, from+10*time.Second, nil)
		j.more = 0
		j.pass(t, from+40*time.Second+time.Duration(j.rng.Int64N(int64(5*time.Second))).Round(watchStep), nil)
	}
	slices.Sort(took)
	t.Logf("%d early rounds, of %d; after %v", j.early(), len(j.rounds), took)
	if half, most := took[len(took)/2], took[len(took)*9/10]; half > 2500*time.Millisecond || most > 4500*time.Millisecond {
		t.Errorf("half within %v, nine tenths within %v", half, most)
	}
	for i, r := range j.rounds[1:] {
		if gap := r.At.Sub(j.rounds[i].At); r.Why == ReasonEarly && j.rounds[i].Why.forLoad() && gap < time.Second {
			t.Errorf("an early round %v after one by load", gap)
		}
	}
	i := slices.IndexFunc(j.entries, func(e *store.Entry) bool { return e != nil && strings.HasPrefix(e.Why, "early") })
	if i < 0 || !strings.Contains(j.entries[i].Why, "was foretold") {
		t.Errorf("the history does not say why: %v", j.entries[max(i, 0)])
	}
}

// Early rounds that follow one another come at growing gaps, up to the interval.
func TestEarlyRoundsAreDamped(t *testing.T) {
	var s schedule
	s.begin(0, 5*time.Second, 1)
	var gaps []time.Duration
	for n := range 6 {
		s.hurry, s.early, s.roundAt = "", "t1 carries 9, 1 was foretold", time.Hour
		why, due, _ := s.round(false, 0)
		if why != ReasonEarly {
			t.Fatalf("a round for %q", why)
		}
		gaps = append(gaps, due-s.roundLast)
		s.roundLast = due
		s.calm(due, 5*time.Second, n != 4) // the fifth is held because the interval is over
	}
	if want := []time.Duration{1e9, 2e9, 4e9, 5e9, 5e9, 1e9}; !slices.Equal(gaps, want) {
		t.Errorf("gaps of %v, want %v", gaps, want)
	}
	if s.early != "" {
		t.Error("the reason outlives its round")
	}
}
