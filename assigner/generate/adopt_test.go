package generate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/assignment/store"
)

// braked is one job's core, a store that compares the orders with each write, tasks
// that come, go and carry load, and an operator.
type braked struct {
	*testing.T
	rng       *rand.Rand
	seed      uint64
	at        time.Duration
	core      *Core
	job       store.Job
	stored    *assignment.Assignment
	kept      []*assignment.Assignment
	overrides store.Overrides
	entries   []store.Entry
	tasks     map[string]*process
	seq       uint64
	noted     []string
	noteErr   error
	skew      time.Duration // of the core's wall clock
	mustHold  bool          // nothing may be written now
	takes     time.Duration // a round
	busy      time.Duration // all rounds
}

func newBraked(t *testing.T, seed uint64) *braked {
	b := &braked{T: t, rng: rand.New(rand.NewPCG(seed, 5)), seed: seed, tasks: map[string]*process{}}
	cfg := assignment.JobConfig{Name: "job", MaxReplicas: 1 + b.rng.IntN(3), HeartbeatTimeout: 3 * time.Second, Freeze: assignment.FreezeConfig{Share: 1},
		Balance: assignment.BalanceConfig{MinSlicesPerTask: 6, Interval: time.Second}}
	b.job = store.Job{Config: cfg.WithDefaults(), Version: 1}
	b.take()
	for i := range 5 {
		b.start(fmt.Sprint("t", i))
	}
	b.pass(5 * time.Second)
	return b
}

// take has an assigner become preferred that knows nothing yet, as after a takeover.
func (b *braked) take() {
	b.core = New(Config{ID: "me"}, "job", b.now())
	b.core.Attach(b.now(), 1, "d")
	b.core.Preferred(b.now(), "me")
	b.beat(true)
}

func (b *braked) now() Now { return Now{Mono: b.at, Wall: epoch.Add(b.at + b.skew)} }

func (b *braked) start(name string) {
	b.seq++
	b.tasks[name] = &process{incarnation: b.seq, state: assignment.TaskRunning}
}

func (b *braked) names() []string {
	var names []string
	for n := range b.tasks {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// beat has every task report, with load that lies on few keys.
func (b *braked) beat(complete bool) {
	b.seq++
	var rs []Report
	for _, name := range b.names() {
		p := b.tasks[name]
		r := Report{Report: membership.Report{Said: true, Sequence: b.seq, State: p.state,
			Task: assignment.Task{Name: name, Incarnation: p.incarnation, Address: name + ":1", Weight: 1}}}
		if b.stored != nil {
			l := &assignment.Load{Generation: b.stored.Generation(), Window: time.Second}
			for s, reps := range b.stored.All() {
				for x := range reps.All() {
					if x.Name == name && x.Incarnation == p.incarnation {
						rate := 1.
						if s.Contains(hotKey) {
							rate = 50
						}
						l.Ranges, l.Rate = append(l.Ranges, s), append(l.Rate, rate)
						l.Total += rate
					}
				}
			}
			r.Load = l
		}
		rs = append(rs, r)
	}
	b.core.Reports(b.now(), 1, complete, rs)
	b.core.Heard(b.now(), 1, b.at)
}

const hotKey assignment.SliceKey = 0x1234567812345678

func (b *braked) pass(d time.Duration) {
	for end := b.at + d; b.at < end; {
		b.at += 100 * time.Millisecond
		if b.at%time.Second == 0 {
			b.beat(false)
		}
		b.drive()
	}
}

func (b *braked) drive() {
	for range 20 {
		action, _ := b.core.Next(b.now())
		switch a := action.(type) {
		case Load:
			l := Loaded{Exists: true, Job: b.job, StoreID: 7, Assignment: b.stored, Overrides: b.overrides}
			if r := b.overrides.Rollback; r != nil {
				for _, k := range b.kept {
					if k.Generation() == r.Generation {
						l.Target = k
					}
				}
			}
			if a.Penalties {
				l.Recalled = true
				if n := len(b.entries); n > 0 {
					l.Penalties, l.PenaltiesAt = b.entries[n-1].Penalties, b.entries[n-1].When
				}
			}
			b.core.Loaded(b.now(), l)
		case *Plan:
			d := a.Run()
			b.at, b.busy = b.at+b.takes, b.busy+b.takes
			b.core.Planned(b.now(), d)
		case Write:
			b.core.Written(b.now(), b.write(a))
		case Audit:
			if b.noteErr != nil {
				b.core.Audited(b.now(), a, b.noteErr)
				continue
			}
			if c := b.overrides.Clone(); a.Lifts != 0 && c.Lift(a.Lifts) {
				b.order(func(c *store.Overrides, _ store.Stamp) { c.Lift(a.Lifts) })
			}
			b.noted = append(b.noted, a.Action+": "+a.Why)
			b.core.Audited(b.now(), a, nil)
		default:
			return
		}
		b.core.Outputs()
	}
}

// drain drains a task, or lifts its drain, as the assigner's service does.
func (b *braked) drain(task string, undo bool) error {
	incarnation, err := b.core.View(b.now()).Drainable(task, undo)
	if err != nil {
		return err
	}
	b.order(func(c *store.Overrides, s store.Stamp) {
		at, there := c.DrainOf(task)
		switch {
		case there && undo:
			c.Drains = slices.Delete(c.Drains, at, at+1)
		case !there && !undo:
			c.Drains = slices.Insert(c.Drains, at, store.Drain{Stamp: s, Order: c.Version, Task: task, Incarnation: incarnation})
		}
	})
	return nil
}

// write does what a store does, and looks at every generation.
func (b *braked) write(w Write) error {
	if max(w.Overrides, 0) != b.overrides.Version || w.Next.Previous() != generation(b.stored) {
		return &store.ConflictError{Key: "job", Current: int64(generation(b.stored))}
	}
	if b.mustHold {
		b.Fatalf("seed %d, %s: generation %d is written in a frozen job", b.seed, b.at, w.Next.Generation())
	}
	if w.Entry == nil || w.Entry.Generation != w.Next.Generation() || w.Entry.Validate() != nil {
		b.Fatalf("seed %d: entry %+v of generation %d", b.seed, w.Entry, w.Next.Generation())
	}
	if moved := b.byBalancer(w.Entry); moved > b.job.Config.Balance.MoveBudget+1e-9 {
		b.Fatalf("seed %d: the balancer has moved %g of the keyspace", b.seed, moved)
	}
	b.entries = append(b.entries, *w.Entry)
	if w.Fulfills {
		b.overrides = b.overrides.Fulfilled()
	}
	b.stored = w.Next
	b.kept = append(b.kept, w.Next)
	b.covered()
	b.core.StoreChanged(b.now())
	return nil
}

func (b *braked) byBalancer(e *store.Entry) (moved float64) {
	for _, d := range e.Decisions {
		if (d.Kind == "move" || d.Kind == "eject" || d.Kind == "replicate") && d.Reason != "pinned" && d.Reason != string(reasonRollback) && d.Reason != "below min replicas" {
			moved += d.KeyChurn
		}
	}
	return moved
}

// covered checks what holds of any generation: all keys have an owner, pinned ones
// theirs alone if it runs, and excluded tasks nothing.
func (b *braked) covered() {
	covered := assignment.SliceKey(0)
	for s, r := range b.stored.All() {
		if r.Len() < 1 || s.Start != covered {
			b.Fatalf("seed %d: slice %s has %d owners and follows %s", b.seed, s, r.Len(), covered)
		}
		covered = s.End
		for x := range r.All() {
			if b.overrides.Excludes(x.Name) != nil && !b.frozen() {
				b.Fatalf("seed %d, %s: %s is excluded and owns %s", b.seed, b.at, x.Name, s)
			}
		}
	}
	if covered != assignment.KeyspaceEnd {
		b.Fatalf("seed %d: the slices end at %s", b.seed, covered)
	}
	if b.frozen() {
		return
	}
	for _, p := range b.overrides.Pins {
		pos, ok := b.stored.Position(p.Task)
		if !ok || b.stored.Task(pos).State != assignment.TaskRunning || b.overrides.Excludes(p.Task) != nil {
			continue
		}
		if !pinned(b.stored, p.Slice, b.stored.Task(pos)) {
			b.Fatalf("seed %d, %s: %s is pinned to %s and not there in generation %d", b.seed, b.at, p.Slice, p.Task, b.stored.Generation())
		}
	}
}

func (b *braked) frozen() bool { return b.overrides.Freeze != nil }

// order changes the overrides, as an assigner does for an operator.
func (b *braked) order(f func(c *store.Overrides, s store.Stamp)) {
	next := b.overrides.Clone()
	next.Version++
	f(&next, store.Stamp{Who: "ada", When: b.now().Wall})
	if err := next.Validate(); err != nil {
		b.Fatal(err)
	}
	b.overrides = next
	b.mustHold = false
	b.core.StoreChanged(b.now())
}

func (b *braked) freeze(d time.Duration) {
	b.order(func(c *store.Overrides, s store.Stamp) {
		c.Freeze = &store.Freeze{Stamp: s, Order: c.Version}
		if d > 0 {
			c.Freeze.Until = s.When.Add(d)
		}
	})
}

func (b *braked) unfreeze() {
	b.order(func(c *store.Overrides, _ store.Stamp) { c.Freeze = nil; c.Thaws++ })
}

func (b *braked) pin(s assignment.Slice, task string) {
	b.order(func(c *store.Overrides, by store.Stamp) {
		c.Pins = []store.Pin{{Stamp: by, Order: c.Version, Slice: s, Task: task}}
	})
}

func (b *braked) exclude(task string) {
	b.order(func(c *store.Overrides, s store.Stamp) {
		c.Exclude = []store.Exclusion{{Stamp: s, Order: c.Version, Task: task}}
	})
}

// churn has tasks die, restart and come.
func (b *braked) churn() {
	names := b.names()
	switch name := names[b.rng.IntN(len(names))]; b.rng.IntN(4) {
	case 0:
		if len(names) > 3 {
			delete(b.tasks, name)
		}
	case 1:
		b.start(name)
	default:
		b.start(fmt.Sprint("t", b.rng.IntN(7)))
	}
	b.beat(true)
	b.pass(time.Duration(b.rng.IntN(6)) * time.Second)
}

// TestBrakes plays histories of tasks, load, takeovers and orders. Every generation
// is looked at when it is written.
func TestBrakes(t *testing.T) {
	for seed := range uint64(seedtest.Cases(40)) {
		b := newBraked(t, seed)
		for range 10 {
			names := b.names()
			task := names[b.rng.IntN(len(names))]
			switch b.rng.IntN(8) {
			case 0:
				b.freeze(0)
				b.pass(2 * time.Second)
				b.mustHold = true
			case 1:
				b.unfreeze()
			case 2:
				b.pin(assignment.Slice{Start: hotKey, End: hotKey + 1 + assignment.SliceKey(b.rng.Uint64N(1<<61))}, task)
			case 3:
				b.exclude(task)
			case 4:
				b.order(func(c *store.Overrides, _ store.Stamp) { c.Exclude, c.Pins = nil, nil })
			case 5:
				b.order(func(c *store.Overrides, s store.Stamp) {
					c.Rollback = &store.Rollback{Stamp: s, Order: c.Version, Generation: b.kept[b.rng.IntN(len(b.kept))].Generation()}
				})
				b.pass(3 * time.Second)
				if b.overrides.Rollback != nil {
					t.Fatalf("seed %d: the rollback is not carried out: %s", seed, b.core.View(b.now()).Holding())
				}
				// A pin ordered since goes on to count.
				b.mustHold = b.frozen() && (len(b.overrides.Pins) == 0 || b.overrides.Pins[0].Order < b.overrides.Freeze.Order)
			case 6:
				b.take()
			}
			b.churn()
			b.pass(3 * time.Second)
		}
		b.end()
	}
}

// end lifts everything: then the job is balanced as ever.
func (b *braked) end() {
	b.order(func(c *store.Overrides, _ store.Stamp) {
		c.Freeze, c.Exclude, c.Pins, c.Thaws = nil, nil, nil, c.Thaws+1
	})
	b.pass(150 * time.Second) // damping ends, too
	for _, name := range b.names() {
		pos, ok := b.stored.Position(name)
		if !ok || !owns(b.stored, pos) || b.stored.Task(pos).Incarnation != b.tasks[name].incarnation {
			b.Fatalf("seed %d: %s owns nothing in the end: %s", b.seed, name, b.core.View(b.now()).Holding())
		}
	}
}

// Rounds that take long, be it by load or for what happens to tasks, take at most half
// of all time, and what is done by order is called that, whatever else is due.
func TestRoundsTakeHalfOfAllTime(t *testing.T) {
	b := newBraked(t, 3)
	b.job.Config.Balance.Interval = 100 * time.Millisecond
	b.job.Version++
	b.core.StoreChanged(b.now())
	b.pass(10 * time.Second)
	b.takes = time.Second
	half := func(what string, during func(i int)) (ordered int) {
		n, begun, busy := len(b.entries), b.at, b.busy
		for i := range 20 {
			during(i)
			b.pass(3 * time.Second)
		}
		if all, rounds := b.at-begun, b.busy-busy; rounds < all/4 || rounds > all/2+b.takes {
			t.Errorf("%s: rounds take %s of %s", what, rounds, all)
		}
		for _, e := range b.entries[n:] {
			if strings.HasPrefix(e.Why, string(ReasonOrder)) {
				ordered++
			}
		}
		return ordered
	}
	half("nothing happens", func(int) {})
	ordered := half("orders", func(i int) { b.pin(assignment.Slice{Start: hotKey, End: hotKey + 1}, fmt.Sprint("t", i%2)) })
	if ordered != 20 {
		t.Errorf("%d generations are called ordered, want 20", ordered)
	}
	half("restarts", func(i int) { b.start(fmt.Sprint("t", i%5)) })
}

// A frozen job changes for orders given since, and for nothing else.
func TestFrozenObeys(t *testing.T) {
	b := newBraked(t, 1)
	b.freeze(0)
	b.mustHold = true
	delete(b.tasks, "t4") // it dies
	b.start("t3")         // it restarts
	b.start("t9")         // it is new
	b.beat(true)
	b.pass(20 * time.Second)
	before := b.stored
	b.exclude("t0")
	b.pass(3 * time.Second)
	if _, done, why, _ := b.core.View(b.now()).CarriedOut(b.overrides.Version); !done {
		t.Fatalf("the exclusion is not carried out: %s", why)
	}
	for s, r := range b.stored.All() {
		was, is := before.Lookup(s.Start).At(0).Name, r.At(0).Name
		if was != "t0" && is != was {
			t.Errorf("%s went from %s to %s, which no operator has ordered", s, was, is)
		}
		if is == "t0" || is == "t4" && was != "t4" {
			t.Errorf("%s went from %s to %s", s, was, is)
		}
	}
	b.pin(assignment.Slice{Start: hotKey, End: hotKey + 1}, "t9")
	b.pass(3 * time.Second)
	if got := b.stored.Lookup(hotKey); got.Len() != 1 || got.At(0).Name != "t9" {
		t.Errorf("the pinned key is at %s", got.At(0).Name)
	}
	if err := b.drain("t2", false); err != nil {
		t.Fatal(err)
	}
	b.pass(2 * time.Second)
	if _, ok, why, _ := b.core.View(b.now()).CarriedOut(b.overrides.Version); !ok {
		t.Errorf("t2 was not drained: %s", why)
	}
	b.mustHold = true
	b.pass(10 * time.Second)
	if h := b.core.View(b.now()).Holding(); h != "frozen by ada" {
		t.Errorf("it holds because of %q", h)
	}
	b.freeze(5 * time.Second)
	b.mustHold = true
	b.pass(4 * time.Second)
	b.mustHold = false
	b.pass(10 * time.Second) // the freeze runs out
	if pos, ok := b.stored.Position("t4"); ok && owns(b.stored, pos) {
		t.Error("a dead task owns slices after the freeze")
	}
}

// A rollback has every key where it was, save those of tasks that are gone.
func TestRollback(t *testing.T) {
	b := newBraked(t, 2)
	target := b.stored
	b.start("t5")
	b.pass(10 * time.Second)
	delete(b.tasks, "t1")
	b.pass(10 * time.Second)
	if b.stored.Checksum() == target.Checksum() {
		t.Fatal("nothing has changed")
	}
	n := len(b.kept)
	b.order(func(c *store.Overrides, s store.Stamp) {
		s.Why = "better before"
		c.Rollback = &store.Rollback{Stamp: s, Order: c.Version, Generation: target.Generation()}
		c.Freeze = &store.Freeze{Stamp: s, Order: c.Version}
	})
	order := b.overrides.Version
	b.pass(3 * time.Second)
	if len(b.kept) != n+1 {
		t.Fatalf("%d generations were written for one rollback", len(b.kept)-n)
	}
	if g, done, why, _ := b.core.View(b.now()).CarriedOut(order); !done || g != b.stored.Generation() {
		t.Errorf("obeyed: %d, %v, %s", g, done, why)
	}
	for s, r := range b.stored.All() {
		was := target.Lookup(s.Start).At(0).Name
		if is := r.At(0).Name; is != was && was != "t1" || is == "t1" {
			t.Errorf("%s is at %s, was at %s", s, is, was)
		}
	}
	e := b.entries[len(b.entries)-1]
	if e.Who != "ada" || e.Why != fmt.Sprintf("rollback to generation %d: better before", target.Generation()) || e.Order != order || len(e.Decisions) == 0 {
		t.Errorf("the history says %+v", e)
	}
	b.mustHold = true
	b.pass(10 * time.Second)
}

// Pins hold through a rollback, also in a job that was frozen after they were
// ordered or is frozen with it.
func TestRollbackKeepsPins(t *testing.T) {
	b := newBraked(t, 6)
	target := b.stored.Generation()
	was := b.stored.Lookup(hotKey).At(0).Name
	to := b.names()[0]
	if to == was {
		to = b.names()[1]
	}
	b.pin(assignment.Slice{Start: hotKey, End: hotKey + 1}, to)
	b.pass(3 * time.Second)
	for range 2 {
		b.order(func(c *store.Overrides, s store.Stamp) {
			c.Rollback = &store.Rollback{Stamp: s, Order: c.Version, Generation: target}
			if c.Freeze == nil {
				c.Freeze = &store.Freeze{Stamp: s, Order: c.Version}
			}
		})
		b.pass(3 * time.Second)
		if b.overrides.Rollback != nil {
			t.Fatalf("the rollback is not carried out: %s", b.core.View(b.now()).Holding())
		}
		if r := b.stored.Lookup(hotKey); r.Len() != 1 || r.At(0).Name != to {
			t.Errorf("the pinned key is at %s, not at %s", r.At(0).Name, to)
		}
	}
}

// What is impossible is given up, and said.
func TestRollbackToNothing(t *testing.T) {
	b := newBraked(t, 3)
	b.order(func(c *store.Overrides, s store.Stamp) {
		c.Rollback = &store.Rollback{Stamp: s, Order: c.Version, Generation: 12345}
	})
	b.pass(3 * time.Second)
	if _, done, why, final := b.core.View(b.now()).CarriedOut(b.overrides.Version); done || !final || why == "" {
		t.Errorf("obeyed: %v, %q, %v", done, why, final)
	}
}

// vanishing has the job freeze when more than half of its tasks fall silent.
func (b *braked) vanishing() {
	b.job.Config.Freeze = assignment.FreezeConfig{}
	b.job.Config = b.job.Config.WithDefaults()
	b.job.Version++
	b.core.StoreChanged(b.now())
	b.pass(10 * time.Second)
}

// An order to unfreeze lifts the freeze of a job whose tasks have vanished, too.
func TestUnfreezeVanished(t *testing.T) {
	b := newBraked(t, 4)
	b.vanishing()
	for _, name := range []string{"t0", "t1", "t2"} {
		delete(b.tasks, name)
	}
	b.pass(6 * time.Second)
	if b.core.View(b.now()).Vanished() == 0 {
		t.Fatal("3 of 5 tasks are silent, and nothing is frozen")
	}
	b.unfreeze()
	b.pass(3 * time.Second)
	if b.core.View(b.now()).Vanished() != 0 || b.core.View(b.now()).Live() != 2 {
		t.Errorf("frozen for %s, %d tasks live", b.core.View(b.now()).Vanished(), b.core.View(b.now()).Live())
	}
}

// A job's config says how flapping tasks are damped, and inspection for how long.
func TestDampingOfJob(t *testing.T) {
	b := newBraked(t, 5)
	standing := func() string {
		for _, s := range b.core.View(b.now()).Tasks() {
			if s.Task.Name == "t0" {
				return s.Standing
			}
		}
		return "it is not there"
	}
	flap := func() {
		for range 2 {
			b.start("t0")
			b.beat(true)
			b.pass(5 * time.Second)
		}
	}
	flap()
	if s := standing(); s != "" {
		t.Errorf("two failures are no flapping by default: %q", s)
	}
	b.job.Config.Damping = assignment.DampingConfig{HalfLife: 10 * time.Minute, Suppress: 2}
	b.job.Config = b.job.Config.WithDefaults()
	b.job.Version++
	b.core.StoreChanged(b.now())
	b.pass(time.Second)
	flap()
	if s := standing(); !strings.HasPrefix(s, "damped for 1") {
		t.Errorf("t0 is %q, want it damped", s)
	}
	if pos, ok := b.stored.Position("t0"); ok && owns(b.stored, pos) {
		t.Error("t0 is damped and owns slices")
	}
	b.take() // another assigner knows of it
	b.pass(5 * time.Second)
	if s := standing(); !strings.HasPrefix(s, "damped for 1") {
		t.Errorf("after a takeover t0 is %q, want it damped", s)
	}
	if pos, ok := b.stored.Position("t0"); ok && owns(b.stored, pos) {
		t.Error("t0 is damped and owns slices after a takeover")
	}
}
