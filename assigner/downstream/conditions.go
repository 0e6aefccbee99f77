package downstream

import (
	"maps"
	"slices"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// saidOf is what a Distributor's message says of one task.
type saidOf struct {
	task      string
	gone      bool // its stream to the Distributor has ended
	known     bool // there is a report
	condition *slicerv1.TaskCondition
}

func newSaidOf(m *slicerv1.TaskReport) saidOf {
	s := saidOf{task: m.GetTask().GetName(), gone: m.GetDisconnected(), known: m.GetReport() != nil}
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

// conditions are those of all tasks, for the Distributors that these are not connected to.
// The zero value knows of none.
type conditions struct {
	tasks map[string]from
	told  []*slicerv1.TaskCondition
	stale bool // told is not what tasks say
}

// from is a task's condition and the Distributor that says it.
type from struct {
	of Session
	is *slicerv1.TaskCondition
}

func (c *conditions) report(of Session, complete bool, said []saidOf) {
	if complete && len(c.tasks) > 0 {
		named := make(map[string]bool, len(said))
		for _, s := range said {
			named[s.task] = true
		}
		c.forget(func(task string, f from) bool { return f.of == of && !named[task] })
	}
	for _, s := range said {
		was, ok := c.tasks[s.task]
		switch {
		case s.condition != nil:
			if c.tasks == nil {
				c.tasks = make(map[string]from)
			}
			c.tasks[s.task] = from{of, s.condition}
			c.stale = true
		case ok && (s.known && !s.gone || was.of == of && s.gone):
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

// worst are those that Distributors are told.
func (c *conditions) worst() []*slicerv1.TaskCondition {
	if !c.stale {
		return c.told
	}
	c.stale = false
	var all []*slicerv1.TaskCondition
	for _, f := range slices.Collect(maps.Values(c.tasks)) {
		all = append(all, f.is)
	}
	if all = wire.WorstConditions(all); !wire.SameConditions(all, c.told) {
		c.told = all
	}
	return c.told
}
