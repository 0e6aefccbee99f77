package generate

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/loadbalance"
)

// Action is what a Core wants done next: Load, *Plan, Write, one of those of
// consistent mode, or nil for nothing.
type Action any

// Load asks for the job's config and its newest assignment to be read.
type Load struct {
	// Penalties asks for those of the history's newest generation, too.
	Penalties bool
	// Names asks for those of the job's tasks, too.
	Names bool
}

// Write asks for an assignment to be written, on condition that the overrides are still
// those it was decided under, and if Token is not 0 that it is still that of the job
// lease.
type Write struct {
	Next  *assignment.Assignment
	Token lease.Token
	// Overrides is the version of the overrides under which Next was decided, and
	// Fulfills says that it carries their rollback out; see store.Commit.
	Overrides int64
	Fulfills  bool
	// Entry goes into the history, of which Keep stay; nil if it makes no sense.
	Entry *store.Entry
	Keep  int
}

// Next says what to do now. When there is nothing, wake is when to ask again at
// the latest; anything that is heard may make it sooner.
func (c *Core) Next(now Now) (action Action, wake time.Duration) {
	c.tick(now)
	if c.members.table != nil && !c.lead.isPreferred() && c.now.Mono-c.members.strayAt > straysFor {
		c.members.drop() // what was reported although this assigner is not preferred
	}
	if c.members.table != nil {
		c.members.table.Advance(c.now.Mono)
		c.listen()
	}
	c.store.loadDue = c.store.loadDue || c.Names.due()
	if c.store.loadDue && c.now.Mono >= c.store.retryAt {
		c.store.loadDue = false // what changes from now on calls for another one
		return Load{Penalties: c.lead.isPreferred() && !c.lead.recalled, Names: c.Names.kept()}, 0
	}
	if a := c.jobLease.next(c.leads(), c.lead.mine, &c.store); a != nil {
		return a, 0
	}
	if c.inCharge() {
		if n, at, ok := c.overrides.audit(&c.members); ok && c.now.Mono >= at {
			return n, 0
		}
	}
	if x, ok := c.Names.next(c.rounds.pending != nil); ok {
		return x, 0
	}
	if p := c.rounds.pending; p != nil && c.lead.isPreferred() && c.jobLease.mayDecide(&c.store) {
		c.rounds.pending, c.store.unsure = nil, p
		return p.write(c.jobLease.token, c.store.job.Config.History), 0
	}
	if p := c.plan(); p != nil {
		return p, 0
	}
	return nil, c.wake()
}

func (c *Core) wake() time.Duration {
	at := c.now.Mono + time.Hour
	earlier := func(t time.Duration) { at = min(at, max(t, c.now.Mono+time.Millisecond)) }
	if c.store.loadDue {
		earlier(c.store.retryAt)
	}
	if c.members.table != nil {
		earlier(c.members.table.Wake())
		if !c.lead.isPreferred() {
			earlier(c.members.strayAt + straysFor + time.Millisecond)
		}
	}
	if t, ok := c.jobLease.wake(c.leads()); ok {
		earlier(t)
	}
	if t, ok := c.Names.wake(); ok {
		earlier(t)
	}
	if _, t, ok := c.overrides.audit(&c.members); ok && c.inCharge() {
		earlier(t)
	}
	if c.ready() {
		if _, due, ok := c.sched.round(c.store.newest == nil, c.store.job.Config.WarmUp); ok {
			earlier(due)
		}
	}
	return at
}

// inCharge reports whether this assigner is preferred for the job, and has read it since.
func (c *Core) inCharge() bool { return c.lead.isPreferred() && c.lead.mine && c.store.exists }

// ready reports whether rounds are held here at all.
func (c *Core) ready() bool {
	return c.inCharge() && !c.store.loadDue && c.members.table != nil && c.jobLease.mayDecide(&c.store)
}

// plan begins a round if one is due and nothing speaks against it.
func (c *Core) plan() *Plan {
	if !c.ready() {
		return nil
	}
	c.sched.noteRunning(c.now.Mono, c.members.table.AnyRunning())
	why, due, ok := c.sched.round(c.store.newest == nil, c.store.job.Config.WarmUp)
	if !ok || c.now.Mono < due {
		return nil
	}
	c.watchClock(generation(c.store.newest), c.store.interval())
	back := c.overrides.goesBack(c.store.newest)
	if back {
		why = ReasonOrder
	}
	label, held := held(&c.members, &c.overrides, why)
	if held != "" && !(label == labelFrozen && !c.members.frozen() && c.store.newest != nil && (back || c.overrides.ordered(c.members.table, c.store.newest))) {
		c.rounds.finish(Round{Why: why, At: c.now.Wall, Skipped: held, Label: label})
		c.sched.putOff(c.now.Mono, c.store.interval(), why)
		return nil
	}
	restricted := held != ""
	if restricted {
		why = ReasonOrder
	}
	full := why.forLoad() || why == ReasonConfig || why == ReasonFirst
	if full {
		c.members.table.Compact()
		c.listen()
	}
	tasks := c.members.table.Tasks()
	p := &Plan{
		tasks: tasks, restricted: restricted, overrides: c.overrides.inForce, taskChanges: c.overrides.takeTaskChanges(),
		Why: why, job: c.name, storeID: c.store.id, reported: c.store.reported(c.lead.sessions), wall: c.now.Wall,
		force: why == ReasonReported || back, version: c.members.table.Version(), of: c.members.table, began: c.now.Mono, reports: c.members.meter.reports(),
		in: loadbalance.Input{
			Prev: c.store.newest, Tasks: c.overrides.mayOwn(tasks), Ages: c.members.table.Ages(), Config: c.store.job.Config, State: c.rounds.balance, MembershipOnly: !full,
			Fixed: c.overrides.pins(restricted && !back), // a rollback undoes what older pins have done, too
		},
	}
	if back {
		p.target = c.overrides.target
	}
	if restricted {
		p.away = c.overrides.away(c.members.table)
	}
	switch {
	case why == ReasonEarly:
		if p.taskChanges != "" {
			p.taskChanges = ", " + p.taskChanges
		}
		p.taskChanges = c.sched.early + p.taskChanges
		p.reports, p.in.Elapsed = c.members.meter.newest()
		p.in.Elapsed = min(c.now.Mono-c.sched.roundLast, p.in.Elapsed)
	case full && (c.members.meter.fresh > 0 || c.rounds.balance == nil):
		p.in.Elapsed = c.now.Mono - c.sched.roundLast
	case c.rounds.balance == nil:
		// The first loads since the takeover: better than none.
		p.in.Elapsed = c.store.interval()
	}
	if !restricted {
		c.sched.changed, c.sched.urgent = false, false
		c.sched.flaps.planned(c.now.Mono)
	}
	return p
}

// Why a round is skipped, besides the reasons of loadbalance: as a label, and in words.
const (
	labelFrozen  = "frozen"
	labelWaiting = "waiting for distributors"
	labelDefect  = "defect"
	labelQuiet   = "nothing moves"
	labelOrder   = "order not possible"

	skipQuiet  = "no task's keys change, nor how they are reached: left to the next round by load"
	skipFrozen = "a large part of the tasks fell silent at once"
)

// held says why no round may be held now for this reason, or returns "".
func held(m *members, o *overrides, why Reason) (label, held string) {
	switch {
	case m.frozen() && !deafToFreeze:
		return labelFrozen, skipFrozen
	case o.frozen():
		return labelFrozen, o.frozenBy()
	case why.forLoad():
		return labelWaiting, m.table.Listening()
	}
	return "", ""
}
