package downstream

import (
	"maps"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// saidOf is what a Distributor's message says of one task.
type saidOf struct {
	task      string
	gone      bool // its stream to the Distributor has ended
	known     bool // there is a report
	age       time.Duration
	condition *slicerv1.TaskCondition
}

func newSaidOf(m *slicerv1.TaskReport) saidOf {
	s := saidOf{task: m.GetTask().GetName(), gone: m.GetDisconnected(), known: m.GetReport() != nil,
		age: time.Duration(min(max(m.GetReport().GetAgeMs(), 0), levelFor.Milliseconds())) * time.Millisecond}
	if !s.gone && s.known {
		s.condition = wire.ConditionOf(m.GetTask(), m.GetReport())
	}
	return s
}

// ofTheirOwn leaves out what was said in the name of a task by an identity that does not
// hold it. Both lists are of the same tasks; said is used again.
func ofTheirOwn(said []saidOf, reports []generate.Report) []saidOf {
	own := said[:0]
	for i, s := range said {
		if !reports[i].Foreign {
			own = append(own, s)
		}
	}
	return own
}

// levelFor is how long a level is told that is not reported again, from when the report was
// made: tasks report each second, and Distributors pass that on each second. So an assigner
// that is preferred once more tells nothing of when it was before, and no task that has moved
// to another Distributor is taken for full for long because of a report that was held up.
const levelFor = 5 * time.Second

// conditions are those of all tasks, for the Distributors that these are not connected to.
// The zero value knows of none.
type conditions struct {
	tasks   map[string]from
	told    []*slicerv1.TaskCondition
	stale   bool          // told is not what tasks say
	expires time.Duration // when the first of the levels does, if it is not reported again
}

// from is a task's condition, the Distributor that says it, and when the task did.
type from struct {
	of   Session
	is   *slicerv1.TaskCondition
	made time.Duration
}

// report takes what a Distributor says of tasks. What one says is newer than what it said
// before, and than what another said if it was made later.
func (c *conditions) report(now time.Duration, of Session, complete bool, said []saidOf) {
	if complete && len(c.tasks) > 0 {
		named := make(map[string]bool, len(said))
		for _, s := range said {
			named[s.task] = true
		}
		c.forget(func(task string, f from) bool { return f.of == of && !named[task] })
	}
	for _, s := range said {
		was, ok := c.tasks[s.task]
		made := now - s.age
		newer := !ok || was.of == of || made > was.made
		switch {
		case s.condition != nil && newer:
			if c.tasks == nil {
				c.tasks = make(map[string]from)
			}
			c.tasks[s.task] = from{of, s.condition, made}
			c.stale = true
		case ok && newer && (s.known && !s.gone || was.of == of && s.gone):
			delete(c.tasks, s.task)
			c.stale = true
		}
	}
}

// Level is the priority below which a task refuses requests, 0 when it has room for all, as
// far as is known here.
func (j *Job) Level(task string) uint32 { return j.tasks.tasks[task].is.GetLevel() }

func (c *conditions) detach(of Session) {
	c.forget(func(_ string, f from) bool { return f.of == of })
}

func (c *conditions) forget(which func(task string, f from) bool) {
	before := len(c.tasks)
	maps.DeleteFunc(c.tasks, which)
	c.stale = c.stale || len(c.tasks) < before
}

// expire forgets levels that are not reported any more, and sets when to look again. That a
// task drains is so until it ends.
func (c *conditions) expire(now time.Duration) {
	c.expires = now + levelFor
	for task, f := range c.tasks {
		if f.is.GetLevel() == 0 {
			continue
		}
		if at := f.made + levelFor; now < at {
			c.expires = min(c.expires, at)
		} else if f.is = wire.WithoutLevel(f.is); f.is != nil {
			c.tasks[task] = f
		} else {
			delete(c.tasks, task)
		}
	}
}

// worst are those that Distributors are told.
func (c *conditions) worst(now time.Duration) []*slicerv1.TaskCondition {
	if !c.stale && (len(c.tasks) == 0 || now < c.expires) {
		return c.told
	}
	c.stale = false
	c.expire(now)
	var all []*slicerv1.TaskCondition
	for _, f := range slices.Collect(maps.Values(c.tasks)) {
		all = append(all, f.is)
	}
	if all = wire.WorstConditions(all); !wire.SameConditions(all, c.told) {
		c.told = all
	}
	return c.told
}
