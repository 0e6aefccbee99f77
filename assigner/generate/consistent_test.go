package generate

import (
	"context"
	"fmt"
	"testing"
	"time"

	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/lease"
)

// leases are the records of the cluster's job and who leads it. Nil stands for
// a cluster in affinity mode.
type leases struct {
	*cluster
	records lease.Records
	leader  int // core, -1 if none
	token   lease.Token
	fence   bool // the store compares the token
	changes [2]*Change
	steps   [2]int // of the change under way
	taken   int    // steps
	single  map[assignment.Generation]bool
}

func (l *leases) fails(what string) bool {
	return l.faulty && rapid.IntRange(0, 9).Draw(l.T, what) == 0
}

func (l *leases) lead(i int) (lease.Token, error) {
	if l.leader >= 0 && l.leader != i {
		return 0, lease.ErrHeld
	}
	if l.fails("lead is lost") {
		return 0, lease.ErrUnavailable
	}
	if l.leader < 0 {
		l.leader = i
		l.token++
	}
	if l.fails("answer to lead is lost") {
		return 0, lease.ErrUnavailable
	}
	return l.token, nil
}

func (l *leases) resign(i int, a Resign) error {
	if l.changes[i] != nil {
		l.Fatalf("core %d resigns in the middle of a change of its own", i)
	}
	if l.fails("resign is lost") {
		return lease.ErrUnavailable
	}
	if l.leader == i && (a.Token == 0 || a.Token == l.token) {
		l.leader = -1
	}
	if l.fails("answer to resign is lost") {
		return lease.ErrUnavailable
	}
	return nil
}

func (l *leases) begin(i int, a Change) {
	if l.changes[i] != nil {
		l.Fatalf("core %d begins a second change", i)
	}
	if a.Wait != time.Second {
		l.Fatalf("a wait of %s", a.Wait)
	}
	l.changes[i], l.steps[i] = &a, 0
}

func (l *leases) end(i int, st lease.State, err error) {
	if l.changes[i] == nil {
		l.Fatalf("core %d ends a change that there is none of", i)
	}
	l.changes[i] = nil
	l.cores[i].Changed(l.now(i), st, l.steps[i], err)
}

// run takes up to n steps of a core's change, as lease.Advance does.
func (l *leases) run(i, n int) {
	for range n {
		if l == nil || l.changes[i] == nil {
			return
		}
		c := l.changes[i]
		s := lease.Next(lease.State{Records: l.records}, c.Wanted)
		if s.Kind == lease.Idle {
			l.end(i, lease.State{Records: l.records}, nil)
			l.drive(i, 10)
			return
		}
		if l.leader != i || l.token != c.Token {
			l.end(i, lease.State{}, fmt.Errorf("step: %w", lease.ErrDeposed))
			return
		}
		o, err := s.Outcome(l.records)
		if err != nil {
			l.Fatal(err)
		}
		if o.Guard.Generation < l.records.Guard.Generation || o.Head < l.records.Head {
			l.Fatalf("step %s from %+v to %+v goes backwards", s.Kind, l.records, o.Records)
		}
		if !l.single[o.Head] {
			l.Fatalf("generation %d gives a key to several, or is not stored", o.Head)
		}
		l.records = o.Records
		l.taken++
		l.steps[i]++
	}
}

// mayDecide checks that no assigner decides in the middle of a change.
func (l *leases) mayDecide(i int) {
	switch {
	case l == nil:
	case l.changes[i] != nil:
		l.Fatalf("core %d decides while its change is under way", i)
	case l.leader == i && l.cores[i].jobLease.token == l.token && lease.Next(lease.State{Records: l.records}, 0).Kind != lease.Idle:
		l.Fatalf("core %d leads and decides in the middle of a change: %+v", i, l.records)
	}
}

// fenced writes, with the comparison of the token if the store makes it.
func (c *cluster) fenced(i int, w Write) error {
	l := c.leases
	if l == nil {
		if w.Token != 0 {
			c.Fatal("a token in affinity mode")
		}
		return c.write(w.Next)
	}
	leads := l.leader == i && l.token == w.Token
	switch {
	case w.Token == 0:
		c.Fatalf("core %d writes without a token", i)
	case leads && c.stored != nil && single(c.stored) && w.Next.Previous() == c.stored.Generation() &&
		l.records != (lease.Records{Head: c.stored.Generation(), Guard: lease.Guard{Generation: c.stored.Generation(), Open: true}}):
		c.Fatalf("core %d writes before generation %d is in force: %+v", i, c.stored.Generation(), l.records)
	case !single(w.Next):
		c.Fatalf("generation %d gives a key to several", w.Next.Generation())
	case !leads && l.fence:
		return fmt.Errorf("write: %w", lease.ErrDeposed)
	}
	err := c.write(w.Next)
	if c.stored == w.Next {
		l.single[w.Next.Generation()] = true
	}
	return err
}

// more is how many more things can happen.
func (l *leases) more() int {
	if l == nil {
		return 0
	}
	return 2
}

// act takes what happens to the leases.
func (l *leases) act() {
	i := rapid.IntRange(0, 1).Draw(l.T, "whose")
	switch rapid.IntRange(0, 3).Draw(l.T, "lease act") {
	case 0: // its session is lost, and it hears of it sooner or later
		if l.leader == i {
			l.leader = -1
		}
		if rapid.Bool().Draw(l.T, "hears") {
			l.cores[i].Lost(l.now(i), lease.ErrLost)
		}
	case 1: // or finds out in the middle of a change
		if l.changes[i] != nil {
			if l.leader == i {
				l.leader = -1
			}
			l.end(i, lease.State{}, lease.ErrLost)
		}
	case 2:
		l.run(i, rapid.IntRange(1, 4).Draw(l.T, "steps of the change"))
	default:
		l.drive(i, rapid.IntRange(1, 4).Draw(l.T, "steps of the core"))
	}
}

// configure changes the job's config.
func (c *cluster) configure() {
	if c.leases == nil {
		c.job.Config.MinReplicas = rapid.IntRange(1, 3).Draw(c.T, "min replicas")
		return
	}
	c.job.Config.Balance.BandStart = rapid.Float64Range(1.02, 2).Draw(c.T, "band")
}

// Two assigners, on leases and a store that fail, keep to the order: nothing is
// decided in the middle of a change, nothing is stored before what was stored
// before it is in force, nothing comes in force twice or gives a key to several.
func TestTwoAssignersOfAConsistentJob(t *testing.T) {
	changes := 0
	rapid.Check(t, func(rt *rapid.T) {
		c := &cluster{T: rt, faulty: true, proposed: map[assignment.Generation]map[uint64]bool{}, tasks: map[string]*process{}}
		c.job = store.Job{Version: 1, Config: assignment.JobConfig{Name: "job", Mode: assignment.Consistent, LeaseDuration: time.Second,
			Balance: assignment.BalanceConfig{MinSlicesPerTask: 24, Interval: 2 * time.Second}, Freeze: assignment.FreezeConfig{For: 30 * time.Second}}.WithDefaults()}
		l := &leases{cluster: c, leader: -1, fence: rapid.Bool().Draw(rt, "fence"), single: map[assignment.Generation]bool{0: true}}
		c.leases = l
		if rapid.Bool().Draw(rt, "was in affinity mode") {
			c.stored = c.shared(rt)
			c.proposed[c.stored.Generation()] = map[uint64]bool{c.stored.Checksum(): true}
		}
		for i := range c.cores {
			c.cores[i] = New(Config{ID: fmt.Sprint(i)}, "job", c.now(i))
			c.cores[i].Attach(c.now(i), 1, "d")
		}
		for range rapid.IntRange(10, 60).Draw(rt, "steps") {
			c.act()
		}
		c.end()
		g := c.stored.Generation()
		if want := (lease.Records{Head: g, Guard: lease.Guard{Generation: g, Open: true}}); l.records != want || l.leader != 0 {
			rt.Fatalf("in the end the records are %+v, led by %d; stored is %d", l.records, l.leader, g)
		}
		changes += l.taken / 6
	})
	t.Logf("about %d changes", changes)
	if changes == 0 {
		t.Error("nothing was tried")
	}
}

// shared is what a job in affinity mode may leave behind: keys of two tasks each,
// dead or, though that is not allowed, alive.
func (c *cluster) shared(t *rapid.T) *assignment.Assignment {
	tasks := []assignment.Task{
		{Name: "x", Incarnation: 1, Address: "x:1", Index: 0, Weight: 1, State: assignment.TaskDead},
		{Name: "y", Incarnation: 1, Address: "x:1", Index: 1, Weight: 1, State: assignment.TaskDead},
	}
	if rapid.Bool().Draw(t, "alive") {
		for i, name := range []string{"a", "b"} {
			tasks[i].Name, tasks[i].State = name, assignment.TaskRunning
			c.tasks[name] = &process{incarnation: 1, state: assignment.TaskRunning}
		}
	}
	cols := assignment.Columns{Offsets: []uint32{0}}
	const slices = 144
	for i := range slices {
		cols.Starts = append(cols.Starts, assignment.SliceKey(i)*(assignment.KeyspaceEnd/slices))
		cols.Owners = append(cols.Owners, 0, 1)
		cols.Offsets = append(cols.Offsets, uint32(len(cols.Owners)))
	}
	a, err := assignment.New(assignment.Header{Job: "job", StoreID: 7, Generation: 5}, tasks, cols)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// scriptLeases are those of a transcript.
type scriptLeases struct {
	records lease.Records
	held    bool // by another
	slow    bool // changes stay under way
	change  *Change
}

// order does what a core in consistent mode asks for.
func (s *script) order(t *testing.T, action Action) {
	l := &s.leases
	switch a := action.(type) {
	case nil:
	case Lead:
		if l.held {
			s.core.Led(s.now(), 0, lease.ErrHeld)
		} else {
			s.core.Led(s.now(), lease.Token(epoch.UnixMilli()+1), nil)
		}
	case Change:
		l.change = &a
		if !l.slow {
			s.finish(t, false)
		}
	case Abandon:
		l.change = nil
		s.core.Changed(s.now(), lease.State{}, 0, context.Canceled)
	case Resign:
		s.core.Resigned(s.now(), nil)
	default:
		t.Fatalf("action %T", a)
	}
}

// finish ends the change under way.
func (s *script) finish(t *testing.T, deposed bool) {
	l := &s.leases
	c := l.change
	l.change = nil
	if deposed {
		s.core.Changed(s.now(), lease.State{}, 0, lease.ErrDeposed)
		return
	}
	steps := 0
	for ; ; steps++ {
		step := lease.Next(lease.State{Records: l.records}, c.Wanted)
		if step.Kind == lease.Idle {
			break
		}
		fmt.Fprintf(&s.out, "%.2fs -> %s\n", s.at.Seconds(), step.Kind)
		o, err := step.Outcome(l.records)
		if err != nil {
			t.Fatal(err)
		}
		l.records = o.Records
	}
	s.core.Changed(s.now(), lease.State{Records: l.records}, steps, nil)
}
