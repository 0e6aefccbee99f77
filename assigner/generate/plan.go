package generate

import (
	"fmt"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/loadbalance"
)

// Reason is why a round was held.
type Reason string

// Reasons for rounds.
const (
	ReasonFirst      Reason = "first"      // there is no assignment yet
	ReasonMembership Reason = "membership" // a task came, went, drains or has changed
	ReasonLoad       Reason = "load"       // the balancing interval has passed
	ReasonEarly      Reason = "early"      // a task carries far more than the last round foretold
	ReasonConfig     Reason = "config"     // the job's config has changed
	ReasonReported   Reason = "reported"   // a subscriber holds a newer generation than is stored
	ReasonTakeover   Reason = "takeover"   // this assigner has just become preferred
	ReasonOrder      Reason = "order"      // an operator has ordered something
	ReasonWarming    Reason = "warming"    // new tasks are warm enough for more
)

// forLoad reports whether a round is held for the sake of load alone.
func (r Reason) forLoad() bool { return r == ReasonLoad || r == ReasonEarly }

// Plan is a round to be worked out, away from the Core: it is a value of its own.
type Plan struct {
	Why Reason
	// Work is memory for Run, see loadbalance.Input; nil unless the driver sets it.
	Work *loadbalance.Workspace

	in       loadbalance.Input // without Loads; of Tasks those excluded may own nothing
	tasks    []assignment.Task // as they are
	reports  []loadbalance.Report
	job      string
	storeID  uint64
	reported assignment.Generation
	wall     time.Time
	force    bool              // write even if nothing changes
	version  uint64            // of the table of tasks
	of       *membership.Table // that table, to know it again
	began    time.Duration     // on the monotonic clock

	// What operators have ordered: nothing else is to change when restricted.
	restricted  bool
	away        map[string]bool        // tasks that are to own nothing, when restricted
	target      *assignment.Assignment // whose placement is to be had again, nil if none
	overrides   store.Overrides
	taskChanges string
}

// Planned is what a Plan came to.
type Planned struct {
	*Plan
	Out   loadbalance.Output
	Loads *loadbalance.Loads
	// Next is to be written; nil when nothing changes or something is wrong.
	Next *assignment.Assignment
	// Err is set when the decision makes no assignment: that is a defect.
	Err error

	round Round
	entry *store.Entry
}

// Began is when the plan was made, on the monotonic clock.
func (p *Plan) Began() time.Duration { return p.began }

// Run works the plan out. It depends on the plan alone and is safe to call
// without a lock; it takes up to a second for the largest jobs.
func (p *Plan) Run() *Planned {
	d := &Planned{Plan: p}
	in := p.in
	in.Work, p.Work = p.Work, nil
	if in.Prev != nil && len(p.reports) > 0 {
		d.Loads = loadbalance.Measure(in.Prev, p.reports)
		in.Loads = d.Loads
	}
	switch {
	case p.target != nil:
		if d.Out, d.Err = p.goBack(); d.Err != nil {
			return d
		}
	case p.restricted:
		d.Out = p.onlyOrdered(in, loadbalance.Rebalance(in))
	default:
		d.Out = loadbalance.Rebalance(in)
	}
	placement, ok := d.Out.Placement, len(d.Out.Placement.Starts) > 0
	if !ok || !d.Out.Changed {
		// Owners stay as they are; the table of tasks may be another.
		if placement, ok = keep(in.Prev, p.tasks, !ok && !p.restricted); !ok {
			return d
		}
	}
	if in.Prev != nil && !d.Out.Changed && !p.force && sameTasks(in.Prev, p.tasks) {
		return d
	}
	prev := assignment.Generation(0)
	if in.Prev != nil {
		prev = in.Prev.Generation()
	}
	// What is too far ahead was refused and alarmed; the number is good without it.
	next, _ := assignment.NextGeneration(prev, p.reported, p.wall)
	h := assignment.Header{Job: p.job, StoreID: p.storeID, Generation: next}
	d.Next, d.Err = assignment.Successor(in.Prev, h, slices.Clone(p.tasks), placement)
	return d
}

// keep is the placement of prev in terms of other tasks. ok is false when an
// owner is not among them, or there is no prev, or, with same, when an owner is
// another incarnation: that one owns nothing before it is given something.
func keep(prev *assignment.Assignment, tasks []assignment.Task, same bool) (p assignment.Placement, ok bool) {
	if prev == nil {
		return p, false
	}
	at := make(map[string]uint32, len(tasks))
	for i, t := range tasks {
		at[t.Name] = uint32(i)
	}
	c := prev.Columns()
	p = assignment.Placement{Starts: slices.Clone(c.Starts), Offsets: slices.Clone(c.Offsets), Owners: make([]uint32, len(c.Owners))}
	for i, o := range c.Owners {
		was := prev.Task(int(o))
		if p.Owners[i], ok = at[was.Name]; !ok || same && !was.Same(tasks[p.Owners[i]]) {
			return p, false
		}
	}
	return p, true
}

func sameTasks(prev *assignment.Assignment, tasks []assignment.Task) bool {
	if prev.NumTasks() != len(tasks) {
		return false
	}
	for i, t := range prev.Tasks() {
		if tasks[i] != t {
			return false
		}
	}
	return true
}

// Round is what became of a plan, or why there was none.
type Round struct {
	Why Reason
	// Generation is what was written, 0 if nothing was.
	Generation assignment.Generation
	At         time.Time
	Took       time.Duration
	Stats      loadbalance.Stats
	Decisions  []loadbalance.Decision
	// Skipped says why nothing was done for the sake of load, or nothing at all;
	// Label is the same in one of a fixed set of phrases.
	Skipped, Label string
}

func (r Round) String() string {
	s := fmt.Sprintf("%s round", r.Why)
	if r.Generation != 0 {
		s += fmt.Sprintf(" wrote generation %d", r.Generation)
	}
	if r.Skipped != "" {
		s += ", skipped: " + r.Skipped
	}
	return s
}
