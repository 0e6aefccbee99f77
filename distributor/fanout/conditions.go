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
	due   due // they are to be told
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

// unacknowledged is for when the assigner does not acknowledge this Distributor any more: the
// levels that it has told may be long over, also when it is heard again, before it tells others.
// Clients that are told a level hold requests back, and do so again each time it is repeated. That
// a task drained is told on, since nothing is held back because of it.
func (c *conditions) unacknowledged(now time.Time) {
	if len(c.above) == 0 {
		return
	}
	var drain []*slicerv1.TaskCondition // the list may be told: it is replaced
	for _, x := range c.above {
		if x = wire.WithoutLevel(x); x != nil {
			drain = append(drain, x)
		}
	}
	c.above = drain
	c.changed(now, false)
}

func (c *conditions) changed(now time.Time, soon bool) {
	gap := StragglersGap
	if soon {
		gap = StatusGap
	}
	c.due.after(now, gap)
}

// all are those to be told.
func (c *conditions) all() []*slicerv1.TaskCondition {
	all := slices.DeleteFunc(slices.Collect(maps.Values(c.here)), func(x *slicerv1.TaskCondition) bool { return x == nil })
	for _, x := range c.above {
		if _, here := c.here[x.GetTask()]; !here {
			all = append(all, x)
		}
	}
	return wire.WorstConditions(all)
}
