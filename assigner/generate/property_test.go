package generate

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/lease"
)

// cluster is two assigners' cores on one store, a Distributor that reports to the one it
// takes for preferred, and tasks: everything that can go wrong between them does.
type cluster struct {
	*rapid.T
	at       time.Duration
	cores    [2]*Core
	stored   *assignment.Assignment
	job      store.Job
	proposed map[assignment.Generation]map[uint64]bool // checksums
	faulty   bool
	leases   *leases
	skew     [2]time.Duration // of the cores' wall clocks
	told     int              // the assigner that the Distributor reports to
	tasks    map[string]*process
	seq      uint64
}

type process struct {
	incarnation uint64
	state       assignment.TaskState
}

// now is what the clocks of a core show.
func (c *cluster) now(i int) Now { return Now{Mono: c.at, Wall: epoch.Add(c.at + c.skew[i])} }

// drive has one core do up to n things, each of which may fail.
func (c *cluster) drive(i, n int) {
	core := c.cores[i]
	for range n {
		action, _ := core.Next(c.now(i))
		switch a := action.(type) {
		case Load:
			l := Loaded{Exists: true, Job: c.job, StoreID: 7, Assignment: c.stored}
			if c.faulty && rapid.IntRange(0, 9).Draw(c.T, "read fails") == 0 {
				l = Loaded{Err: store.ErrUnavailable}
			}
			if c.faulty && i == 0 && rapid.IntRange(0, 3).Draw(c.T, "meanwhile") == 0 {
				c.drive(1, 3)
			}
			core.Loaded(c.now(i), l)
		case *Plan:
			c.leases.mayDecide(i)
			core.Planned(c.now(i), a.Run())
			if c.faulty && i == 0 && rapid.IntRange(0, 3).Draw(c.T, "before the write") == 0 {
				c.drive(1, 3)
			}
		case Write:
			core.Written(c.now(i), c.fenced(i, a))
		case Audit:
			core.Audited(c.now(i), a, nil)
		case Lead:
			token, err := c.leases.lead(i)
			core.Led(c.now(i), token, err)
		case Change:
			c.leases.begin(i, a)
		case Abandon:
			c.leases.end(i, lease.State{}, context.Canceled)
		case Resign:
			core.Resigned(c.now(i), c.leases.resign(i, a))
		default:
			return
		}
		core.Outputs()
	}
}

func (c *cluster) write(next *assignment.Assignment) error {
	if c.proposed[next.Generation()] == nil {
		c.proposed[next.Generation()] = map[uint64]bool{}
	}
	c.proposed[next.Generation()][next.Checksum()] = true
	what := 9
	if c.faulty {
		what = rapid.IntRange(0, 9).Draw(c.T, "write")
	}
	if what == 0 {
		return store.ErrUnavailable // and nothing was stored
	}
	if next.Previous() != generation(c.stored) {
		return &store.ConflictError{Key: "job", Current: int64(generation(c.stored))}
	}
	if c.stored != nil && next.Generation() <= c.stored.Generation() {
		c.Fatalf("generation %d would follow %d", next.Generation(), c.stored.Generation())
	}
	// Every assigner has begun with a right clock: none that jumps spoils the numbers.
	if limit := epoch.Add(c.at + assignment.MaxAhead).UnixMilli(); int64(next.Generation()) > max(limit, int64(next.Previous())+1) {
		c.Fatalf("generation %d is beyond %d, and follows %d", next.Generation(), limit, next.Previous())
	}
	c.stored = next
	for i, core := range c.cores {
		core.StoreChanged(c.now(i))
	}
	if what == 1 {
		return store.ErrUnavailable // but it was stored
	}
	return nil
}

// beat makes the Distributor report every task to the assigner that it takes for
// preferred.
func (c *cluster) beat(complete bool) {
	c.seq++
	var rs []Report
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		p := c.tasks[name]
		if p == nil {
			continue
		}
		rs = append(rs, Report{Report: membership.Report{Said: true, Sequence: c.seq, State: p.state,
			Task: assignment.Task{Name: name, Incarnation: p.incarnation, Address: "x:1", Weight: 1}}})
	}
	c.cores[c.told].Reports(c.now(c.told), 1, complete, rs)
	for i, core := range c.cores {
		core.Heard(c.now(i), 1, c.at)
	}
}

func (c *cluster) pass(d time.Duration) {
	for end := c.at + d; c.at < end; {
		c.at += 100 * time.Millisecond
		if c.at%time.Second == 0 {
			c.beat(false)
		}
		for i := range c.cores {
			c.drive(i, 10)
			c.leases.run(i, 10)
		}
	}
}

func (c *cluster) act() {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(c.T, "task")
	switch rapid.IntRange(0, 9+c.leases.more()).Draw(c.T, "act") {
	case 0, 1:
		c.seq++
		c.tasks[name] = &process{incarnation: c.seq, state: assignment.TaskRunning}
	case 2:
		if p := c.tasks[name]; p != nil {
			p.state = assignment.TaskDraining
		}
	case 3: // killed: its stream ends
		if p := c.tasks[name]; p != nil {
			delete(c.tasks, name)
			c.cores[c.told].Reports(c.now(c.told), 1, false, []Report{{Report: membership.Report{Disconnected: true,
				Task: assignment.Task{Name: name, Incarnation: p.incarnation, Address: "x:1", Weight: 1}}}})
		}
	case 4: // which is preferred, as each of them sees it
		for i, core := range c.cores {
			core.Preferred(c.now(i), rapid.SampledFrom([]string{"0", "1", ""}).Draw(c.T, fmt.Sprint("preferred as seen by ", i)))
		}
	case 5:
		c.told = rapid.IntRange(0, 1).Draw(c.T, "reports go to")
		c.beat(true)
	case 6:
		c.job.Version++
		c.configure()
		for i, core := range c.cores {
			core.StoreChanged(c.now(i))
		}
	case 7:
		i := rapid.IntRange(0, 1).Draw(c.T, "which")
		c.drive(i, rapid.IntRange(1, 3).Draw(c.T, "steps"))
	case 10, 11:
		c.leases.act()
	default:
		if i := rapid.IntRange(0, 9).Draw(c.T, "whose clock jumps"); i < len(c.skew) {
			c.skew[i] = rapid.SampledFrom([]time.Duration{0, 20 * time.Hour, -20 * time.Hour, 48 * time.Hour, -48 * time.Hour, 1e5 * time.Hour, -1e5 * time.Hour}).Draw(c.T, "by")
		}
		c.pass(time.Duration(rapid.IntRange(1, 40).Draw(c.T, "pass")) * 100 * time.Millisecond)
	}
}

func TestTwoAssigners(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &cluster{T: rt, faulty: true, proposed: map[assignment.Generation]map[uint64]bool{}, tasks: map[string]*process{},
			job: store.Job{Config: assignment.JobConfig{Name: "job", Balance: assignment.BalanceConfig{MinSlicesPerTask: 24, Interval: 2 * time.Second}, Freeze: assignment.FreezeConfig{For: 30 * time.Second}}.WithDefaults(), Version: 1}}
		for i := range c.cores {
			c.cores[i] = New(Config{ID: fmt.Sprint(i)}, "job", c.now(i))
			c.cores[i].Attach(c.now(i), 1, "d")
		}
		for range rapid.IntRange(10, 60).Draw(rt, "steps") {
			c.act()
			if s := c.stored; s != nil && !c.proposed[s.Generation()][s.Checksum()] {
				rt.Fatalf("generation %d is none that was proposed", s.Generation())
			}
		}
		c.end()
	})
}

// end is when one is preferred, all agree, and nothing fails.
func (c *cluster) end() {
	c.faulty = false
	for i, core := range c.cores {
		core.Preferred(c.now(i), "0")
	}
	c.told = 0
	c.beat(true)
	c.tasks["a"] = &process{incarnation: 1 << 40, state: assignment.TaskRunning}
	c.pass(150 * time.Second) // one that has failed again and again waits for two minutes
	c.settled()
}

// settled checks that every task that runs owns something, and no other anything.
func (c *cluster) settled() {
	owns := map[string]bool{}
	for i := range c.stored.NumSlices() {
		r := c.stored.Replicas(i)
		for x := range r.All() {
			owns[fmt.Sprintf("%s/%d", x.Name, x.Incarnation)] = true
		}
		if running := c.running(); r.Len() < min(c.job.Config.MinReplicas, running) {
			c.Fatalf("slice %s has %d replicas, of %d running tasks", c.stored.Slice(i), r.Len(), running)
		}
	}
	for name, p := range c.tasks {
		if p == nil {
			continue
		}
		k := fmt.Sprintf("%s/%d", name, p.incarnation)
		if owns[k] != (p.state == assignment.TaskRunning) {
			c.Fatalf("%s is %s and owns slices: %v", k, p.state, owns[k])
		}
		delete(owns, k)
	}
	if len(owns) > 0 {
		c.Fatalf("%v own slices and are not there", owns)
	}
	for i, core := range c.cores {
		if core.View(c.now(i)).Stored() != c.stored {
			c.Fatalf("assigner %d has generation %d, stored is %d", i, generation(core.View(c.now(i)).Stored()), c.stored.Generation())
		}
	}
	if h := c.cores[0].View(c.now(0)).Holding(); h != "" {
		c.Fatalf("in the end it holds: %s", h)
	}
}

func (c *cluster) running() int {
	n := 0
	for _, p := range c.tasks {
		if p != nil && p.state == assignment.TaskRunning {
			n++
		}
	}
	return n
}
