package generate

import (
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// Overrides are those in force, as far as is known here. Not to be changed.
func (v View) Overrides() store.Overrides { return v.c.overrides.inForce }

// CarriedOut reports whether an order is carried out in the stored assignment, and which
// generation that is; otherwise why not, or "" when it is being done. Final says that
// waiting does not help: it takes another order, or a task that returns.
func (v View) CarriedOut(order int64) (g assignment.Generation, done bool, why string, final bool) {
	g = generation(v.c.store.newest)
	switch {
	case v.c.overrides.inForce.Version < order:
		return g, false, "", false
	case v.c.overrides.void == order:
		return g, false, v.c.overrides.voidWhy, true
	case v.c.overrides.inForce.Rollback != nil && v.c.overrides.inForce.Rollback.Order == order:
		return g, false, v.Holding(), false
	case v.c.store.job.Config.Mode == assignment.Consistent && v.c.lead.isPreferred() && v.c.jobLease.inForce < g:
		return g, false, "", false
	}
	if v.c.store.newest == nil {
		return g, true, "", false
	}
	for _, x := range v.c.overrides.inForce.Exclude {
		if pos, ok := v.c.store.newest.Position(x.Task); x.Order == order && ok && owns(v.c.store.newest, pos) {
			return g, false, v.Holding(), false
		}
	}
	for _, p := range v.c.overrides.inForce.Pins {
		if p.Order != order {
			continue
		}
		switch t, why, soon := v.owner(p.Task); {
		case why != "":
			return g, false, fmt.Sprintf("task %s %s; the keys go there as soon as it may own slices", p.Task, why), !soon
		case !pinned(v.c.store.newest, p.Slice, t):
			return g, false, v.Holding(), false
		}
	}
	return g, true, "", false
}

// owner finds a task that may own slices, or says why it may not, and whether that may
// be over in a moment.
func (v View) owner(name string) (t assignment.Task, why string, soon bool) {
	if v.c.overrides.inForce.Excludes(name) != nil {
		return t, "is excluded", false
	}
	for _, s := range v.Tasks() {
		switch {
		case s.Task.Name != name:
		case s.Task.State == assignment.TaskRunning:
			return s.Task, "", false
		default:
			soon = !v.c.lead.isPreferred() || s.Task.State == assignment.TaskStarting && s.Damped == 0
			return t, "is " + s.Task.State.String(), soon
		}
	}
	return t, "is not there", true
}
