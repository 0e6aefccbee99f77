package generate

import (
	"fmt"
	"hash/fnv"
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
}

// Write asks for an assignment to be written, on condition that the orders are
// still those it was decided under, and if Token is not 0 that it is still that of
// the job lease.
type Write struct {
	Next  *assignment.Assignment
	Token lease.Token
	// Controls is the version of the orders under which Next was decided, and
	// Fulfills says that it carries their rollback out; see store.Commit.
	Controls int64
	Fulfills bool
	// Entry goes into the history, of which Keep stay; nil if it makes no sense.
	Entry *store.Entry
	Keep  int
}

// Next says what to do now. When there is nothing, wake is when to ask again at
// the latest; anything that is heard may make it sooner.
func (c *Core) Next(now Now) (action Action, wake time.Duration) {
	c.tick(now)
	c.dropStrays()
	if c.table != nil {
		c.table.Advance(c.now.Mono)
		c.listen()
	}
	if c.store.loadDue && c.now.Mono >= c.store.retryAt {
		c.store.loadDue = false // what changes from now on calls for another one
		return Load{Penalties: c.isPreferred() && !c.lead.recalled}, 0
	}
	if o := c.order(); o != nil {
		return o, 0
	}
	if c.notes() {
		if n := c.overrides.note(c.now.Mono); n != nil {
			return n, 0
		}
	}
	if p := c.pending; p != nil && c.isPreferred() && c.mayDecide() {
		c.pending, c.store.unsure = nil, p
		return c.write(p), 0
	}
	if p := c.plan(); p != nil {
		return p, 0
	}
	return nil, c.wake()
}

// dropStrays forgets what was reported although this assigner is not preferred.
func (c *Core) dropStrays() {
	if c.table != nil && !c.isPreferred() && c.now.Mono-c.lead.strayAt > straysFor {
		c.table, c.meter = nil, newMeter()
	}
}

func (c *Core) wake() time.Duration {
	at := c.now.Mono + time.Hour
	earlier := func(t time.Duration) { at = min(at, max(t, c.now.Mono+time.Millisecond)) }
	if c.store.loadDue {
		earlier(c.store.retryAt)
	}
	if c.table != nil {
		earlier(c.table.Wake())
		if !c.isPreferred() {
			earlier(c.lead.strayAt + straysFor + time.Millisecond)
		}
	}
	if t, ok := c.leaseWake(); ok {
		earlier(t)
	}
	if t, ok := c.overrides.noteWake(); ok && c.notes() {
		earlier(t)
	}
	if c.ready() {
		if _, due, ok := c.sched.round(c.store.newest == nil, c.store.job.Config.WarmUp); ok {
			earlier(due)
		}
	}
	return at
}

// ready reports whether rounds are held here at all.
func (c *Core) ready() bool {
	return c.isPreferred() && c.lead.mine && c.store.exists && !c.store.loadDue && c.table != nil && c.mayDecide()
}

// plan begins a round if one is due and nothing speaks against it.
func (c *Core) plan() *Plan {
	if !c.ready() {
		return nil
	}
	c.sched.noteRunning(c.now.Mono, c.table.AnyRunning())
	why, due, ok := c.sched.round(c.store.newest == nil, c.store.job.Config.WarmUp)
	if !ok || c.now.Mono < due {
		return nil
	}
	c.watchClock()
	back := c.overrides.goesBack(c.store.newest)
	if back {
		why = ReasonOrder
	}
	label, held := c.held(why)
	if held != "" && !(label == labelFrozen && !c.Frozen() && c.store.newest != nil && (back || c.overrides.ordered(c.table, c.store.newest))) {
		c.skip(why, label, held)
		return nil
	}
	restricted := held != ""
	if restricted {
		why = ReasonOrder
	}
	full := why == ReasonLoad || why == ReasonConfig || why == ReasonFirst
	if full {
		c.table.Compact()
		c.listen()
	}
	tasks := c.table.Tasks()
	p := &Plan{
		tasks: tasks, restricted: restricted, controls: c.overrides.controls, news: c.overrides.tidings(),
		Why: why, job: c.name, storeID: c.store.id, reported: c.store.reported(c.lead.sessions), wall: c.now.Wall,
		force: why == ReasonReported || back, version: c.table.Version(), of: c.table, began: c.now.Mono, reports: c.meter.reports(),
		in: loadbalance.Input{
			Prev: c.store.newest, Tasks: c.overrides.mayOwn(tasks), Ages: c.table.Ages(), Config: c.store.job.Config, State: c.balance, MembershipOnly: !full,
			Fixed: c.overrides.pins(restricted && !back), // a rollback undoes what older pins have done, too
		},
	}
	if back {
		p.target = c.overrides.target
	}
	if restricted {
		p.away = c.overrides.away(c.table)
	}
	switch {
	case full && (c.meter.fresh > 0 || c.balance == nil):
		p.in.Elapsed = c.now.Mono - c.sched.roundLast
	case c.balance == nil:
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

	skipQuiet  = "nobody's keys change, nor who is reached for them: left to the next round by load"
	skipFrozen = "a large part of the tasks fell silent at once"
)

// held says why no round may be held now for this reason, or returns "".
func (c *Core) held(why Reason) (label, held string) {
	switch {
	case c.Frozen() && !deafToFreeze:
		return labelFrozen, skipFrozen
	case c.overrides.frozen():
		return labelFrozen, c.overrides.frozenBy()
	case why == ReasonLoad:
		return labelWaiting, c.table.Listening()
	}
	return "", ""
}

// watchClock sets off the alarm when the wall clock and the stored generation are
// more than a day apart, or that clock has jumped ahead: somebody's clock is wrong, and
// people are to set it right. Rounds are held all the same, lest the job stand still:
// what is out of bounds numbers no generation, so the next one follows the stored one,
// and whoever has a right clock can go on from there.
func (c *Core) watchClock() {
	_, err := assignment.NextGeneration(generation(c.store.newest), 0, c.now.Wall)
	switch {
	case c.jumped > 0:
		c.raise("clock", fmt.Sprintf("the clock has jumped ahead by %s since this assigner started: generations are numbered without that; if it is right, restart the assigner",
			c.jumped.Round(time.Second)))
	case err != nil:
		c.raise("stored", err.Error())
	default:
		c.alarm, c.alarmAt = "", 0
	}
}

// raise says once what is wrong, and counts it again and again.
func (c *Core) raise(whose, why string) {
	if c.alarm == "" {
		c.say(levelError, "clock out of bounds", "reason", why)
	}
	c.alarm = why
	if c.now.Mono >= c.alarmAt {
		c.effects.Ahead = append(c.effects.Ahead, whose)
		c.alarmAt = c.now.Mono + c.store.interval()
	}
}

// skip notes that a round is left out, and puts it off.
func (c *Core) skip(why Reason, label, held string) {
	c.finish(Round{Why: why, At: c.now.Wall, Skipped: held, Label: label})
	if why == ReasonLoad {
		c.sched.roundAt = c.now.Mono + c.store.interval()
	} else {
		c.sched.holdUntil = c.now.Mono + holdFor
	}
}

// backoff is how long to wait after n failures in a row: doubling from first to
// most, spread by up to a half so that assigners do not move in step.
func (c *Core) backoff(n int, first, most time.Duration) time.Duration {
	d := min(first<<min(n, 20), most)
	h := fnv.New32a()
	fmt.Fprint(h, c.cfg.ID, c.name, n)
	return d/2 + time.Duration(h.Sum32()%1000)*d/2000
}
