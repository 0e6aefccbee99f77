package generate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// clocked is a job with a new task every second, on a store that always works, and
// assigners with clocks of their own.
type clocked struct {
	*testing.T
	at     time.Duration
	stored *assignment.Assignment
	tasks  []Report
}

// start has an assigner that begins with its clock off by skew take the job over.
func (c *clocked) start(id string, skew time.Duration) *Core {
	core := New(Config{ID: id}, "job", c.now(skew))
	c.take(core, skew)
	return core
}

func (c *clocked) take(core *Core, skew time.Duration) {
	core.Attach(c.now(skew), 1, "d")
	core.Preferred(c.now(skew), core.cfg.ID)
	core.Reports(c.now(skew), 1, true, c.tasks)
}

func (c *clocked) now(skew time.Duration) Now {
	return Now{Mono: c.at, Wall: epoch.Add(c.at + skew)}
}

// pass has a task more join every second, and says whose numbers alarm was raised for.
func (c *clocked) pass(core *Core, skew time.Duration, seconds int) (raised []string) {
	for range 10 * seconds {
		if c.at += 100 * time.Millisecond; c.at%time.Second == 0 {
			n := len(c.tasks)
			task := assignment.Task{Name: fmt.Sprint("t", n), Incarnation: 1, Address: "x:1", Weight: 1}
			c.tasks = append(c.tasks, Report{Report: membership.Report{Said: true, Task: task, State: assignment.TaskRunning}})
			for i := range c.tasks {
				c.tasks[i].Sequence++
			}
			core.Reports(c.now(skew), 1, false, c.tasks)
		}
		c.settle(core, skew)
		raised = append(raised, core.Outputs().Ahead...)
	}
	return raised
}

// settle carries out what the core asks for.
func (c *clocked) settle(core *Core, skew time.Duration) {
	cfg := assignment.JobConfig{Name: "job"}.WithDefaults()
	for done := false; !done; {
		switch a, _ := core.Next(c.now(skew)); a := a.(type) {
		case Load:
			core.Loaded(c.now(skew), Loaded{Exists: true, Job: store.Job{Config: cfg, Version: 1}, StoreID: 7, Assignment: c.stored})
		case *Plan:
			core.Planned(c.now(skew), a.Run())
		case Write:
			if c.stored != nil && a.Next.Generation() <= c.stored.Generation() {
				c.Fatalf("generation %d follows %d", a.Next.Generation(), c.stored.Generation())
			}
			c.stored = a.Next
			core.Written(c.now(skew), nil)
		case Audit:
			core.Audited(c.now(skew), a, nil)
		default:
			done = true
		}
	}
}

// goesOn checks that tasks that join are given slices, at a generation of about the
// true time.
func (c *clocked) goesOn(what string, core *Core, skew time.Duration, alarm string) {
	c.Helper()
	raised := c.pass(core, skew, 20)
	if n := c.stored.NumTasks(); n < len(c.tasks)-1 {
		c.Errorf("%s: %d of %d tasks", what, n, len(c.tasks))
	}
	if off := c.stored.Generation().Time().Sub(epoch.Add(c.at)); off.Abs() > time.Minute {
		c.Errorf("%s: generation %d is off by %s", what, c.stored.Generation(), off)
	}
	if h := core.View(c.now(skew)).Holding(); h != "" {
		c.Errorf("%s: %s", what, h)
	}
	if alarm == "" {
		if core.View(c.now(skew)).Alarm() != "" || raised != nil {
			c.Errorf("%s: alarm %q, raised %v", what, core.View(c.now(skew)).Alarm(), raised)
		}
		return
	}
	// It is counted once an interval.
	if !strings.Contains(core.View(c.now(skew)).Alarm(), "ahead") || len(raised) < 3 || len(raised) > 5 || slices.ContainsFunc(raised, func(w string) bool { return w != alarm }) {
		c.Errorf("%s: alarm %q, raised %v", what, core.View(c.now(skew)).Alarm(), raised)
	}
}

// A clock that goes wrong under an assigner holds no job up, and does not spoil the
// numbers for the next one.
func TestWrongClock(t *testing.T) {
	for skew, alarm := range map[time.Duration]string{
		23 * time.Hour: "", 25 * time.Hour: "clock", 300_000 * time.Hour: "clock", -25 * time.Hour: "stored", -200_000 * time.Hour: "stored",
	} {
		t.Run(skew.String(), func(t *testing.T) {
			c := &clocked{T: t}
			a := c.start("a", 0)
			c.goesOn("a right clock", a, 0, "")
			if skew == 23*time.Hour {
				c.pass(a, skew, 5)
				if got := c.stored.Generation().Time(); got.Before(epoch.Add(skew)) {
					t.Errorf("a clock that is to be believed makes %s", got)
				}
				return
			}
			c.goesOn("it goes wrong", a, skew, alarm)
			c.goesOn("it is right again", a, 0, "")
			c.goesOn("it goes wrong once more", a, skew, alarm)
			// Another assigner goes on at once, and numbers by its own clock.
			before := c.at
			b := c.start("b", 0)
			c.goesOn("another with a right clock", b, 0, "")
			if g := c.stored.Generation().Time(); g.Before(epoch.Add(before)) {
				t.Errorf("generation %d is of before the takeover", c.stored.Generation())
			}
			if skew > 0 {
				return
			}
			// One that begins with its clock behind goes on, too.
			c.goesOn("behind from the start", c.start("c", skew), skew, alarm)
		})
	}
}

// A job that comes after the clock has jumped is numbered by the assigner's start.
func TestFirstGenerationAfterAJump(t *testing.T) {
	c := &clocked{T: t}
	start := c.now(0)
	c.at = time.Hour
	const skew = 48 * time.Hour
	core := New(Config{ID: "a", Start: start}, "job", c.now(skew))
	c.take(core, skew)
	c.goesOn("a new job", core, skew, "clock")
}
