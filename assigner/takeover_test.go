package assigner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// consistent is assigners side by side on one store and one lease store, in virtual
// time, with a Distributor each that reports the same tasks, and readers.
type consistent struct {
	t      *testing.T
	clock  func() time.Duration
	stores []NamedStore
	spy    *spy
	leases lease.Readers
	nodes  []*node
	ds     []*raw
	judge  *judge
	tasks  []*slicerv1.Task
	parts  map[string]*part
	births uint64
}

func newConsistent(t *testing.T, start func(Config) *node, ids ...string) *consistent {
	t.Helper()
	begun := time.Now()
	st := openPebble(t)
	served := openLeases(t, st)
	c := &consistent{t: t, clock: func() time.Duration { return time.Since(begun) }, spy: newSpy(t, served), leases: served, parts: map[string]*part{}}
	c.stores = []NamedStore{{Backend: st, Leases: c.spy}}
	for _, id := range ids {
		c.nodes = append(c.nodes, start(Config{ID: id, Stores: c.stores, alwaysPreferred: len(ids) > 1}))
	}
	job := consistentJob()
	job.HeartbeatTimeoutMs, job.Freeze = 1000, &slicerv1.FreezeConfig{Share: 1}
	c.nodes[0].put(job)
	for i, n := range c.nodes {
		d := n.attach(fmt.Sprintf("d%d", i))
		d.preferred("job", n.cfg.ID)
		d.want(&slicerv1.Want{Job: "job"})
		c.ds = append(c.ds, d)
	}
	c.judge = newJudge(t)
	c.judge.begin(5 * time.Millisecond)
	return c
}

// add starts a task's next incarnation, with its reader.
func (c *consistent) add(name string) {
	c.births++
	x := task(name, c.births)
	p := joinAs(c.t, c.stores[0].Backend, c.leases, x, time.Second, c.clock)
	c.parts[name] = p
	c.judge.add(p)
	for i, o := range c.tasks {
		if o.Name == name {
			c.tasks[i] = x
			return
		}
	}
	c.tasks = append(c.tasks, x)
}

// beat has all Distributors report, for so long.
func (c *consistent) beat(d time.Duration, live ...*raw) {
	if live == nil {
		live = c.ds
	}
	for end := c.clock() + d; ; time.Sleep(100 * time.Millisecond) {
		for _, d := range live {
			d.reports("job", false, c.tasks...)
		}
		if c.clock() >= end {
			return
		}
	}
}

// settled waits until every task believes in what is stored, and nothing is under way.
func (c *consistent) settled(live ...*raw) {
	c.t.Helper()
	var last string
	for range 300 {
		c.beat(100*time.Millisecond, live...)
		a, err := c.stores[0].Backend.Read(c.t.Context(), "job")
		if err != nil {
			last = err.Error()
			continue
		}
		last = ""
		if g := c.spy.inForce(); g != a.Generation() {
			last = fmt.Sprintf("in force is %d, stored %d", g, a.Generation())
		}
		if st, err := c.spy.newest().State(c.t.Context(), "job"); err != nil || st.Bridge != (lease.Bridge{}) {
			last = fmt.Sprintf("bridge %+v, %v", st.Bridge, err)
		}
		for name, p := range c.parts {
			if p.in() != a.Generation() {
				last = fmt.Sprintf("%s is in generation %d, stored is %d", name, p.in(), a.Generation())
			}
		}
		if !ownedBy(c.names()...)(a) {
			last = fmt.Sprintf("owners %v", owners(a))
		}
		if last == "" {
			return
		}
	}
	for _, n := range c.nodes {
		i := n.inspect("job")
		for _, x := range i.Tasks {
			c.t.Logf("%v", x)
		}
		i.Tasks = nil
		c.t.Logf("%v", i)
	}
	c.t.Fatalf("it does not settle: %s", last)
}

func (c *consistent) names() (all []string) {
	for _, x := range c.tasks {
		if x.State == slicerv1.TaskState_TASK_STATE_RUNNING {
			all = append(all, x.Name)
		}
	}
	return all
}

// An assigner dies after each of the steps, without hearing of that one; the next
// completes the change, and no key has two owners at any time.
func TestTakeoverFromEveryStep(t *testing.T) {
	t.Parallel()
	for after := 1; after <= 8; after++ {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			virtually(t, func(t *testing.T, start func(Config) *node) {
				c := newConsistent(t, start, "x")
				c.spy.mu.Lock()
				c.spy.dieAfter = after
				c.spy.mu.Unlock()
				c.add("t1")
				c.add("t2")
				for i := range 40 {
					c.beat(200 * time.Millisecond)
					if s := c.spy.newest(); s != nil && s.alive() != nil {
						break
					}
					if i == 10 {
						c.add("t3") // the first generation is in force
					}
				}
				total := 0
				steps, _ := c.spy.did()
				for _, n := range steps {
					total += n
				}
				if total != after {
					t.Fatalf("steps %v, want %d", steps, after)
				}
				c.nodes[0].stop()
				y := start(Config{ID: "y", Stores: c.stores})
				d := y.attach("dy")
				d.preferred("job", "y")
				d.want(&slicerv1.Want{Job: "job"})
				d.reports("job", true, c.tasks...)
				c.settled(d)
				c.judge.end()
				if steps, _ := c.spy.did(); steps[lease.Boot] != 1 || steps[lease.Span] != steps[lease.Close] {
					t.Errorf("steps %v", steps)
				}
			})
		})
	}
}

// Two assigners that both believe they are preferred, whose sessions are taken
// from them again and again, change a job as often as they can, under readers that
// restart, leave and die: no key has two owners, and nothing that was in force
// comes in force again.
func TestHammerConsistent(t *testing.T) {
	t.Parallel()
	seed := seedtest.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	virtually(t, func(t *testing.T, start func(Config) *node) {
		c := newConsistent(t, start, "x", "y")
		names := []string{"t1", "t2", "t3", "t4"}
		for _, name := range names {
			c.add(name)
		}
		for _, d := range c.ds {
			d.reports("job", true, c.tasks...)
		}
		lost := 0
		for range 120 {
			c.beat(time.Duration(rng.IntN(800)) * time.Millisecond)
			i := rng.IntN(len(c.tasks))
			x := c.tasks[i]
			switch rng.IntN(6) {
			case 0, 1:
				if rng.IntN(2) == 0 {
					c.parts[x.Name].kill()
				} else {
					c.parts[x.Name].leave()
				}
				for _, d := range c.ds {
					d.gone("job", x)
				}
				// Under another name: one that restarts often is not given keys at once.
				c.tasks = slices.Delete(c.tasks, i, i+1)
				delete(c.parts, x.Name)
				c.add(fmt.Sprint("t", c.births+1))
			case 2:
				p := c.parts[x.Name]
				p.cut.off.Store(!p.cut.off.Load())
			case 3:
				if s := c.spy.newest(); s != nil {
					lost++
					_ = s.WriteSession.Close(t.Context()) // as if it had run out
				}
			}
		}
		for _, p := range c.parts {
			p.cut.off.Store(false)
		}
		c.settled()
		c.judge.end()
		steps, inForce := c.spy.did()
		t.Logf("%d generations in force, steps %v, %d sessions lost", inForce, steps, lost)
		if inForce < 20 {
			t.Errorf("only %d generations came in force", inForce)
		}
	})
}

// A reader that has died holds a change up for no longer than its lease.
func TestDeadReaderIsWaitedFor(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		c := newConsistent(t, start, "x")
		c.add("t1")
		c.add("t2")
		c.ds[0].reports("job", true, c.tasks...)
		c.settled()
		c.beat(6 * time.Second)
		c.settled()
		before := c.spy.inForce()
		c.parts["t2"].kill()
		delete(c.parts, "t2")
		c.tasks[1].State = slicerv1.TaskState_TASK_STATE_DRAINING
		var stored, inForce time.Duration
		for c.clock() < time.Minute && inForce == 0 {
			c.beat(0)
			time.Sleep(10 * time.Millisecond)
			a, err := c.stores[0].Backend.Read(t.Context(), "job")
			if err != nil {
				t.Fatal(err)
			}
			if ownedBy("t1")(a) && stored == 0 {
				stored = c.clock()
			}
			if stored != 0 && c.spy.inForce() == a.Generation() && a.Generation() > before {
				inForce = c.clock()
			}
		}
		took := inForce - stored
		t.Logf("without the dead one's keys after %s", took)
		if took <= 0 || took > 2*time.Second {
			t.Errorf("it took %s, the lease time is 1s", took)
		}
		c.settled()
		c.judge.end()
	})
}

// Two processes under one name and incarnation are what nothing here forbids, so
// the judge sees their overlap. Under one name alone the second believes in nothing.
func TestTwoUnderOneName(t *testing.T) {
	for _, incarnation := range []uint64{1, 9} {
		virtually(t, func(t *testing.T, start func(Config) *node) {
			c := newConsistent(t, start, "x")
			c.judge.expected = incarnation == 1
			c.add("t1")
			c.ds[0].reports("job", true, c.tasks...)
			c.settled()
			twin := joinAs(t, c.stores[0].Backend, c.leases, task("t1", incarnation), time.Second, c.clock)
			c.judge.add(twin)
			for range 3 {
				c.ds[0].reports("job", false, task("t1", incarnation))
				c.beat(time.Second)
			}
			if owns := twin.job.Owns(7); owns != (incarnation == 1) {
				t.Errorf("incarnation %d owns a key: %v", incarnation, owns)
			}
			if c.ds[0].mu.Lock(); incarnation != 1 && len(c.ds[0].refused) == 0 {
				t.Error("the second incarnation is not refused")
			}
			c.ds[0].mu.Unlock()
		})
	}
}
