package fanout

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// conditions are those of tasks, for their clients: as tasks that are connected here say,
// and of others as the assigner says.
type conditions struct {
	here  map[string]*slicerv1.TaskCondition // nil for one that has none
	above []*slicerv1.TaskCondition
	// old: the assigner does not acknowledge this Distributor, so what it says may be long over.
	old bool
	due due // they are to be told
}

func newConditions() conditions { return conditions{here: make(map[string]*slicerv1.TaskCondition)} }

// report takes what a task that is connected here says. That it drains is told soon.
func (c *conditions) report(now time.Time, t *reported) {
	name := t.task.GetName()
	was, is := c.here[name], wire.ConditionOf(t.task, t.report)
	if c.here[name] = is; !proto.Equal(was, is) {
		c.changed(now, was.GetDraining() != is.GetDraining())
	}
}

func (c *conditions) leave(now time.Time, task string) {
	if was := c.here[task]; was != nil {
		c.changed(now, was.GetDraining())
	}
	delete(c.here, task)
}

// hear takes what the assigner says.
func (c *conditions) hear(now time.Time, all []*slicerv1.TaskCondition) {
	all = all[:min(len(all), wire.MaxConditions)]
	if wire.SameConditions(c.above, all) {
		return
	}
	draining := func(all []*slicerv1.TaskCondition) (n int) {
		for _, x := range all {
			if x.GetDraining() {
				n++
			}
		}
		return n
	}
	c.changed(now, draining(c.above) != draining(all))
	c.above = all
}

// acknowledged takes whether the assigner acknowledges this Distributor.
func (c *conditions) acknowledged(now time.Time, yes bool) {
	if c.old = !yes; len(c.above) > 0 {
		c.changed(now, false)
	}
}

func (c *conditions) changed(now time.Time, soon bool) {
	gap := StragglersGap
	if soon {
		gap = StatusGap
	}
	c.due.after(now, gap)
}

// all are those to be told. Clients that are told a level hold requests back, and do so again
// each time it is repeated: one that is old is not told. That a task drained is, since nothing is
// held back because of it.
func (c *conditions) all() []*slicerv1.TaskCondition {
	all := slices.DeleteFunc(slices.Collect(maps.Values(c.here)), func(x *slicerv1.TaskCondition) bool { return x == nil })
	for _, x := range c.above {
		if _, here := c.here[x.GetTask()]; here || c.old && !x.GetDraining() {
			continue
		}
		if c.old {
			x = &slicerv1.TaskCondition{Task: x.GetTask(), Incarnation: x.GetIncarnation(), Draining: true}
		}
		all = append(all, x)
	}
	return wire.WorstConditions(all)
}
