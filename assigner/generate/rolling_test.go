package generate

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/assignment/store"
)

// fleet is a core, a store without faults, and tasks that report the load that
// keys with a power law bring them, with the noise of counting.
type fleet struct {
	t      *testing.T
	core   *Core
	at     time.Duration
	job    store.Job
	stored *assignment.Assignment
	keys   []assignment.SliceKey
	rates  []float64
	rng    *rand.Rand
	up     map[string]*process
	seq    uint64
	born   uint64
	// Moved is the share of the keyspace that has changed owners, round by round.
	moved  float64
	rounds int
}

func newFleet(t *testing.T, tasks, keys int, seed uint64) *fleet {
	f := &fleet{t: t, rng: rand.New(rand.NewPCG(seed, 1)), up: map[string]*process{},
		job: store.Job{Config: assignment.JobConfig{Name: "job"}.WithDefaults(), Version: 1}}
	f.core = New(Config{ID: "me"}, "job", f.now())
	f.core.Preferred(f.now(), "me")
	f.core.Attach(f.now(), 1, "d")
	for i := range keys {
		f.keys = append(f.keys, assignment.SliceKey(f.rng.Uint64()>>1))
		f.rates = append(f.rates, 20000/math.Pow(float64(i+1), .99)/math.Log(float64(keys)))
	}
	for i := range tasks {
		f.start(fmt.Sprintf("t%02d", i))
	}
	return f
}

func (f *fleet) now() Now { return Now{Mono: f.at, Wall: epoch.Add(f.at)} }

func (f *fleet) start(name string) {
	f.born++
	f.up[name] = &process{incarnation: f.born, state: assignment.TaskRunning}
	f.report(false)
}

// stop ends a task's process; its Distributor sees the stream end.
func (f *fleet) stop(name string) {
	p := f.up[name]
	delete(f.up, name)
	f.seq++
	f.core.Reports(f.now(), 1, false, []Report{{Report: membership.Report{Disconnected: true, Said: true, Sequence: f.seq,
		State: p.state, Task: f.task(name, p)}}})
	f.drive()
}

func (f *fleet) task(name string, p *process) assignment.Task {
	return assignment.Task{Name: name, Incarnation: p.incarnation, Address: name + ":1", Weight: 1}
}

func (f *fleet) report(load bool) {
	var rs []Report
	f.seq++
	for _, name := range sorted(f.up) {
		p := f.up[name]
		r := Report{Report: membership.Report{Said: true, Sequence: f.seq, State: p.state, Task: f.task(name, p)}}
		if load {
			r.Load = f.load(name, p)
		}
		rs = append(rs, r)
	}
	f.core.Reports(f.now(), 1, true, rs)
	f.drive()
}

// load is what a task counted in the last second.
func (f *fleet) load(name string, p *process) *assignment.Load {
	a := f.stored
	if a == nil {
		return nil
	}
	pos, ok := a.Position(name)
	if !ok || a.Task(pos).Incarnation != p.incarnation {
		return nil
	}
	l := &assignment.Load{Generation: a.Generation(), Window: time.Second, Parts: 1}
	at := map[int]int{}
	for i := range a.NumSlices() {
		if a.Replicas(i).Has(pos) {
			at[i] = len(l.Ranges)
			l.Ranges, l.Rate = append(l.Ranges, a.Slice(i)), append(l.Rate, 0)
		}
	}
	for k, key := range f.keys {
		if i, ok := at[a.Find(key)]; ok {
			rate := f.rates[k] / float64(a.Replicas(a.Find(key)).Len())
			n := max(0, math.Round(rate+math.Sqrt(rate)*f.rng.NormFloat64()))
			l.Rate[i] += n
			l.Total += n
			if k < 20 {
				l.Hot = append(l.Hot, assignment.HotKey{Key: key, Rate: n})
			}
		}
	}
	return l
}

func (f *fleet) drive() {
	for {
		action, _ := f.core.Next(f.now())
		switch a := action.(type) {
		case Load:
			f.core.Loaded(f.now(), Loaded{Exists: true, Job: f.job, StoreID: 7, Assignment: f.stored})
		case *Plan:
			f.core.Planned(f.now(), a.Run())
		case Write:
			if f.stored != nil {
				f.rounds++
				f.moved += arrived(f.stored, a.Next)
			}
			f.stored = a.Next
			f.core.Written(f.now(), nil)
		case Audit:
			f.core.Audited(f.now(), a, nil)
		default:
			f.core.Outputs()
			return
		}
	}
}

func (f *fleet) pass(d time.Duration) {
	for end := f.at + d; f.at < end; {
		f.at += 100 * time.Millisecond
		f.core.Heard(f.now(), 1, f.at)
		if f.at%time.Second == 0 {
			f.report(true)
		}
		f.drive()
	}
}

// owned is how many slices a task's newest incarnation owns.
func (f *fleet) owned(name string) (n int) {
	pos, ok := f.stored.Position(name)
	for i := range f.stored.NumSlices() {
		if ok && f.stored.Replicas(i).Has(pos) {
			n++
		}
	}
	return n
}

// arrived is the share of the keyspace that came to tasks which had not owned it
// before; a restarted task is another.
func arrived(before, after *assignment.Assignment) (share float64) {
	for s, replicas := range after.All() {
		for i := before.Find(s.Start); i < before.NumSlices() && before.Slice(i).Start < s.End; i++ {
			both, ok := s.Intersect(before.Slice(i))
			if !ok {
				continue
			}
			for t := range replicas.All() {
				had := false
				for u := range before.Replicas(i).All() {
					had = had || t.Same(u)
				}
				if !had {
					share += float64(both.End-both.Start) / float64(assignment.KeyspaceEnd)
				}
			}
		}
	}
	return share
}

// TestRollingRestart drains, restarts and lets rejoin 20 tasks, one after another
// or in blocks: each task's share has to go out and to come back, which is twice
// the keyspace, and little more may move.
func TestRollingRestart(t *testing.T) {
	for _, block := range []int{4, 1}[:seedtest.Cases(2)] {
		t.Run(fmt.Sprintf("block=%d", block), func(t *testing.T) {
			f := newFleet(t, 20, 2000, 1)
			f.pass(2 * time.Minute)
			f.moved, f.rounds = 0, 0
			names := sorted(f.up)
			for i := 0; i < len(names); i += block {
				group := names[i : i+block]
				for _, n := range group {
					f.up[n].state = assignment.TaskDraining
				}
				f.report(false)
				for wait := 0; ; wait++ {
					left := 0
					for _, n := range group {
						left += f.owned(n)
					}
					if left == 0 {
						break
					}
					if wait > 300 {
						t.Fatalf("%v still own %d slices after 30 s of draining", group, left)
					}
					f.pass(100 * time.Millisecond)
				}
				f.pass(time.Second)
				for _, n := range group {
					f.stop(n)
				}
				f.pass(3 * time.Second)
				for _, n := range group {
					f.start(n)
				}
				f.pass(20 * time.Second)
			}
			f.pass(time.Minute)
			t.Logf("%.3f of the keyspace moved in %d generations", f.moved, f.rounds)
			if f.moved > 2.2 {
				t.Errorf("%.3f of the keyspace moved, at most 2.2 should", f.moved)
			}
			if f.moved < 1.5 {
				t.Errorf("only %.3f of the keyspace moved: the tasks did not drain", f.moved)
			}
		})
	}
}

func sorted(m map[string]*process) []string { return slices.Sorted(maps.Keys(m)) }
