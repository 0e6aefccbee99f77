package generate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
)

// shiftingJob is the experiment of test/bench/live in virtual time: tasks that count
// requests and report as slicelets do, each at times of its own, and keys of which others
// become the popular ones from one moment to the next.
type shiftingJob struct {
	*watchedJob
	counters []counter // by task
	turned   int       // by how many places the ranking has been turned
	popular  []float64 // by rank: requests a second
}

// counter is what a task has counted since its last report.
type counter struct {
	began, due time.Duration
	count      []float64 // by key
	former     float64   // requests for keys whose owners have become others since
	metered    []metered
}

// metered is a range of keys and for how long in this window it has been the task's.
type metered struct {
	assignment.Slice
	seconds float64 // until the task began to meter by the assignment in force
}

const (
	shiftKeys, shiftStride = 100, 37 // as in test/bench/live
	shiftRate              = 150     // requests a second and task
	shiftParts             = 8       // in which slicelets meter each slice
)

func newShiftingJob(seed uint64, n int) *shiftingJob {
	j := &shiftingJob{watchedJob: newWatchedJob(seed, n, shiftRate)}
	j.c.store.job.Config = assignment.JobConfig{Name: "job"}.WithDefaults()
	j.keys = nil
	sum := 0.0
	for i, k := range j.rng.Perm(shiftKeys) {
		j.keys = append(j.keys, assignment.KeyOf(fmt.Sprintf("key-%02d", k)))
		j.popular = append(j.popular, math.Pow(float64(i+1), -1.5))
		sum += j.popular[i]
	}
	for i := range j.popular {
		j.popular[i] *= shiftRate * float64(n) / sum
	}
	j.counters = make([]counter, n)
	for k := range j.counters {
		j.counters[k] = counter{due: time.Duration(j.rng.Int64N(int64(time.Second))), count: make([]float64, shiftKeys)}
	}
	return j
}

// rateOf is how many requests a second come for a key.
func (j *shiftingJob) rateOf(key int) float64 {
	return j.popular[((key-shiftStride*j.turned)%shiftKeys+shiftKeys)%shiftKeys]
}

// follow makes a task meter by an assignment.
func (j *shiftingJob) follow(k int, a *assignment.Assignment) {
	c := &j.counters[k]
	pos, _ := a.Position(j.tasks[k].Name)
	var now []metered
	for i := range a.NumSlices() {
		if !a.Replicas(i).Has(pos) {
			continue
		}
		m := metered{Slice: a.Slice(i)}
		for _, was := range c.metered {
			if both, ok := was.Intersect(m.Slice); ok && !j.othersOwn(a, both.Start) {
				m.seconds += (was.seconds + (j.at - max(c.began, j.counted[k])).Seconds()) * float64(both.Width()) / float64(m.Width())
			}
		}
		now = append(now, m)
	}
	c.metered = now
	j.counted[k] = j.at // since when it meters by that
	for i, key := range j.keys {
		if !a.Lookup(key).Has(pos) || j.othersOwn(a, key) {
			c.former += c.count[i]
			c.count[i] = 0
		}
	}
}

// othersOwn reports whether a key had other owners in the assignment before a.
func (j *shiftingJob) othersOwn(a *assignment.Assignment, k assignment.SliceKey) bool {
	if j.ownedIn == nil {
		return false
	}
	was, is := j.ownedIn.Lookup(k), a.Lookup(k)
	return !slices.EqualFunc(slices.Collect(was.All()), slices.Collect(is.All()), assignment.Task.Same)
}

// load is what a task reports of its window, as a slicelet would.
func (j *shiftingJob) load(k int, a *assignment.Assignment) *assignment.Load {
	c := &j.counters[k]
	elapsed := (j.at - c.began).Seconds()
	l := &assignment.Load{Generation: a.Generation(), Window: j.at - c.began, Parts: shiftParts, Total: c.former / elapsed}
	since := (j.at - max(c.began, j.counted[k])).Seconds()
	for i := range c.metered {
		m := &c.metered[i]
		secs := m.seconds + since
		m.seconds = 0
		rates := make([]float64, shiftParts)
		sum := 0.0
		for key, n := range c.count {
			if n == 0 || !m.Contains(j.keys[key]) {
				continue
			}
			l.Total += n / elapsed
			x := n / secs
			p := int((float64(j.keys[key]-m.Start)*shiftParts + shiftParts - 1) / float64(m.Width()))
			rates[min(p, shiftParts-1)] += x
			sum += x
			if secs >= elapsed/2 {
				l.Hot = append(l.Hot, assignment.HotKey{Key: j.keys[key], Rate: x})
			}
		}
		if secs >= elapsed/2 {
			l.Ranges, l.Rate, l.PartRate = append(l.Ranges, m.Slice), append(l.Rate, sum), append(l.PartRate, rates...)
		}
	}
	if l.Total == 0 {
		l.Parts, l.PartRate = 1, nil
	}
	l.Hot = slices.DeleteFunc(l.Hot, func(h assignment.HotKey) bool { return h.Rate < .005*l.Total })
	slices.SortFunc(l.Hot, func(a, b assignment.HotKey) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Key, b.Key))
	})
	clear(c.count)
	c.began, c.former = j.at, 0
	return l
}

// pass lets time pass, and calls f at each step.
func (j *shiftingJob) pass(t *testing.T, until time.Duration, f func()) {
	for j.at < until {
		j.at += watchStep
		a := j.a
		if a != nil && a != j.ownedIn {
			for k := range j.tasks {
				j.follow(k, a)
			}
			j.ownedIn = a
		}
		if a != nil {
			for i, key := range j.keys {
				r := a.Lookup(key)
				for n := range r.Len() {
					j.counters[r.At(n).Index].count[i] += float64(j.poisson(j.rateOf(i) * watchStep.Seconds() / float64(r.Len())))
				}
			}
			for k, task := range j.tasks {
				if c := &j.counters[k]; j.at >= c.due {
					c.due = j.at + 900*time.Millisecond + time.Duration(j.rng.Int64N(int64(200*time.Millisecond)))
					j.report(false, Report{Load: j.load(k, a), Report: membership.Report{Task: task, Said: true, State: assignment.TaskRunning}})
				}
			}
		}
		j.act(t)
		if f != nil {
			f()
		}
	}
}

// poisson is how many requests come when mean are to be expected.
func (j *shiftingJob) poisson(mean float64) (n int) {
	for ; mean > 20; mean -= 20 {
		n += j.draw(20)
	}
	return n + j.draw(mean)
}

// imbalance is the largest of the tasks' true loads over their mean.
func (j *shiftingJob) imbalance() float64 {
	load := make([]float64, len(j.tasks))
	for i, key := range j.keys {
		r := j.a.Lookup(key)
		for n := range r.Len() {
			load[r.At(n).Index] += j.rateOf(i) / float64(r.Len())
		}
	}
	return slices.Max(load) / shiftRate
}

// shift makes other keys the popular ones, and returns how long after an assignment came
// by which the load is within 1.2 of the mean for 5 s; an hour if none did in a minute.
func (j *shiftingJob) shift(t *testing.T) (decided time.Duration) {
	j.turned++
	from, since := j.at, time.Duration(-1)
	decided = time.Hour
	j.pass(t, from+time.Minute+time.Duration(j.rng.Int64N(int64(5*time.Second))), func() {
		switch {
		case j.imbalance() >= 1.2:
			since = -1
		case since < 0:
			since = j.at
		}
		if decided == time.Hour && since >= 0 && j.at-since >= 5*time.Second {
			decided = since - from
		}
	})
	return decided
}

// When all keys change places at once, most shifts are answered by the rounds that follow
// within seconds: what they go by first was measured in a second and partly before the shift.
func TestShiftsAreAnswered(t *testing.T) {
	var took []time.Duration
	for seed := range uint64(3) {
		j := newShiftingJob(seed, 10)
		j.pass(t, 40*time.Second, nil)
		for range 20 {
			took = append(took, j.shift(t))
		}
	}
	slices.Sort(took)
	half, most, last := took[len(took)/2], took[len(took)*9/10], took[len(took)-1]
	t.Logf("%d shifts: half within %v, nine tenths within %v, all within %v", len(took), half, most, last)
	if half > 3*time.Second || most > 5*time.Second || last > time.Minute {
		t.Error("want half within 3 s, nine tenths within 5 s, all within a minute")
	}
}

// So is the first shift, within seconds of the start, of which rounds have yet to learn what
// load is usually off by.
func TestFirstShiftIsAnswered(t *testing.T) {
	var took []time.Duration
	for seed := range uint64(12) {
		for _, lead := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
			j := newShiftingJob(100+seed, 10)
			j.pass(t, lead+time.Duration(j.rng.Int64N(int64(5*time.Second))), nil)
			took = append(took, j.shift(t))
		}
	}
	slices.Sort(took)
	half, most, last := took[len(took)/2], took[len(took)*9/10], took[len(took)-1]
	t.Logf("%d first shifts: half within %v, nine tenths within %v, all within %v", len(took), half, most, last)
	if half > 3*time.Second || most > 5*time.Second || last > time.Minute {
		t.Error("want half within 3 s, nine tenths within 5 s, all within a minute")
	}
}

// Where the popularity of keys stays as it is, rounds are held each interval, and few
// change anything.
func TestQuietJobIsLeftAlone(t *testing.T) {
	for seed := range uint64(2) {
		j := newShiftingJob(seed, 10)
		j.pass(t, time.Minute, nil)
		seen, of := len(j.rounds), j.a.Generation()
		generations := 0
		j.pass(t, 11*time.Minute, func() {
			if j.a.Generation() != of {
				of = j.a.Generation()
				generations++
			}
		})
		rounds := len(j.rounds) - seen
		t.Logf("seed %d: %d rounds in ten minutes, %d early, %d generations", seed, rounds, j.early(), generations)
		if rounds > 120 || j.early() > 0 || generations > 10 {
			t.Errorf("seed %d: want at most 120 rounds, none of them early, and 10 generations", seed)
		}
	}
}
