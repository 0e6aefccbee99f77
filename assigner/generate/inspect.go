package generate

import (
	"fmt"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/loadbalance"
)

// Stored is the newest stored assignment that is known here, nil if none.
func (c *Core) Stored() *assignment.Assignment { return c.store.newest }

// Job is the job as stored. known is false before the store has answered, exists
// is false when it says that there is no such job.
func (c *Core) Job() (job store.Job, known, exists bool) {
	return c.store.job, c.store.known, c.store.exists
}

// IsPreferred reports whether this assigner takes the job's decisions.
func (c *Core) IsPreferred() bool { return c.isPreferred() }

// PreferredID is the assigner that does, "" if none.
func (c *Core) PreferredID() string { return c.lead.preferred }

// Distributors is how many are attached.
func (c *Core) Distributors() int { return len(c.lead.sessions) }

// Err is why the store could not be read or written last, nil if it could.
func (c *Core) Err() error { return c.store.err }

// Frozen reports whether the job is frozen because too many tasks vanished at once.
func (c *Core) Frozen() bool {
	if c.table == nil {
		return false
	}
	_, frozen := c.table.Frozen()
	return frozen
}

// Holding says why no decisions are taken just now, or returns "".
func (c *Core) Holding() string {
	switch {
	case c.store.err != nil:
		return fmt.Sprintf("store failing for %s: %v", (c.now.Mono - c.store.errSince).Round(time.Second), c.store.err)
	case !c.store.known:
		return "the store has not answered yet"
	case !c.store.exists:
		return "the store has no such job"
	case !c.isPreferred() && c.lead.preferred == "":
		return "no assigner is preferred: none has a Distributor"
	case !c.isPreferred():
		return fmt.Sprintf("assigner %s is preferred", c.lead.preferred)
	case !c.lead.mine || c.table == nil:
		return "just taken over: reading the store"
	case c.Frozen():
		since, _ := c.table.Frozen()
		return fmt.Sprintf("frozen for %s: %s", since.Round(time.Second), skipFrozen)
	case c.overrides.frozen():
		return c.overrides.frozenBy()
	case c.leaseHolding() != "":
		return c.leaseHolding()
	case len(c.lead.sessions) == 0:
		return c.table.Listening()
	case !c.table.AnyRunning():
		return "no task is running"
	}
	return c.table.Listening()
}

// Alarm says what is wrong with this assigner's clock, or with the stored generation
// compared with it, or is empty. Decisions are taken all the same.
func (c *Core) Alarm() string { return c.alarm }

// LastRound is the last round that was held or left out.
func (c *Core) LastRound() Round { return c.last }

// TaskStatus is how a task stands.
type TaskStatus struct {
	membership.Status
	// Load is all that it carries, units a second, a moving mean over some seconds.
	Load float64
	// Of its newest report.
	Misrouted, Shed, CPU float64
	// Standing says why it is given no slices, or is empty.
	Standing string
	// Warming is how much of its capacity counts while it warms up, 0 to 1; 0 when it
	// does not.
	Warming float64
}

// Tasks are all that are known, in order of name; when this assigner is not
// preferred, those of the stored assignment.
func (c *Core) Tasks(now Now) []TaskStatus {
	c.tick(now)
	var out []TaskStatus
	if !c.isPreferred() || c.table == nil {
		if c.store.newest != nil {
			for _, t := range c.store.newest.Tasks() {
				out = append(out, TaskStatus{Status: membership.Status{Task: t, Indexed: true, Age: -1}})
			}
		}
		return out
	}
	warming := c.warmings()
	for _, s := range c.table.Statuses(c.now.Mono) {
		t := TaskStatus{Status: s}
		if g := c.meter.tasks[s.Task.Name]; g != nil && g.incarnation == s.Task.Incarnation {
			t.Load, t.Misrouted, t.Shed, t.CPU = g.smooth, g.last.Misrouted, g.last.Shed, g.last.CPU
		}
		t.Standing, t.Warming = c.overrides.standing(&s), warming[s.Task.Name]
		out = append(out, t)
	}
	return out
}

// warmings is how much of their capacity counts of the tasks that warm up.
func (c *Core) warmings() map[string]float64 {
	if !c.sched.warming {
		return nil
	}
	tasks := c.overrides.mayOwn(c.table.Tasks())
	m := make(map[string]float64)
	for i, w := range loadbalance.Warmth(tasks, c.table.Ages(), c.store.job.Config.WarmUp) {
		if w < 1 && tasks[i].State == assignment.TaskRunning {
			m[tasks[i].Name] = w
		}
	}
	return m
}

// Live is how many tasks are neither dead nor gone, as far as is known here.
func (c *Core) Live(now Now) int {
	n := 0
	for _, t := range c.Tasks(now) {
		if t.Task.State != assignment.TaskDead {
			n++
		}
	}
	return n
}

// Imbalance is the largest of the tasks' loads over their mean, by
// capacity; 0 when there is no load. Only running tasks count.
func (c *Core) Imbalance(now Now) float64 {
	var total, weight, top float64
	for _, t := range c.Tasks(now) {
		if t.Task.State != assignment.TaskRunning || c.overrides.controls.Excludes(t.Task.Name) != nil {
			continue
		}
		total += t.Load
		weight += t.Task.Weight
		top = max(top, t.Load/t.Task.Weight)
	}
	if total <= 0 {
		return 0
	}
	return top / (total / weight)
}

// Floor is what no assignment of whole keys could bring the imbalance below, as
// the last round with loads saw it; 0 when there was none.
func (c *Core) Floor() float64 { return c.floor }
