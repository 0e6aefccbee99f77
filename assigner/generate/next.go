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
	if c.loadDue && c.now.Mono >= c.retryAt {
		c.loadDue = false // what changes from now on calls for another one
		return Load{Penalties: c.isPreferred() && !c.recalled}, 0
	}
	if o := c.order(); o != nil {
		return o, 0
	}
	if n := c.note(); n != nil {
		return n, 0
	}
	if p := c.pending; p != nil && c.isPreferred() && c.mayDecide() {
		c.pending, c.unsure = nil, p
		return c.write(p), 0
	}
	if p := c.plan(); p != nil {
		return p, 0
	}
	return nil, c.wake()
}

// dropStrays forgets what was reported although this assigner is not preferred.
func (c *Core) dropStrays() {
	if c.table != nil && !c.isPreferred() && c.now.Mono-c.strayAt > straysFor {
		c.table, c.meter = nil, newMeter()
	}
}

func (c *Core) wake() time.Duration {
	at := c.now.Mono + time.Hour
	earlier := func(t time.Duration) { at = min(at, max(t, c.now.Mono+time.Millisecond)) }
	if c.loadDue {
		earlier(c.retryAt)
	}
	if c.table != nil {
		earlier(c.table.Wake())
		if !c.isPreferred() {
			earlier(c.strayAt + straysFor + time.Millisecond)
		}
	}
	if t, ok := c.leaseWake(); ok {
		earlier(t)
	}
	if t, ok := c.noteWake(); ok {
		earlier(t)
	}
	if c.ready() {
		if _, due, ok := c.round(); ok {
			earlier(due)
		}
	}
	return at
}

// ready says whether rounds are held here at all.
func (c *Core) ready() bool {
	return c.isPreferred() && c.mine && c.exists && !c.loadDue && c.table != nil && c.mayDecide()
}

// round is the next one and when it is due.
func (c *Core) round() (why Reason, due time.Duration, ok bool) {
	gap := c.nextRound
	if c.stored == nil {
		if !c.running {
			return "", 0, false
		}
		return ReasonFirst, max(c.runningAt+firstSettle, gap), true
	}
	why, due = ReasonLoad, max(c.roundAt, gap)
	if c.changed {
		at := c.changedAt + joinSettle
		if c.urgent {
			at = c.changedAt
		}
		if at = max(at, gap); at < due {
			why, due = ReasonMembership, at
		}
	}
	if at, ok := c.flaps.due(); ok {
		if at = max(at, gap); at < due {
			why, due = ReasonMembership, at
		}
	}
	if at := max(c.decided+c.job.Config.WarmUp/warmSteps, gap); c.warming && at < due {
		why, due = ReasonWarming, at
	}
	if c.hurry != "" { // which goes before all else that is due, so that it keeps its name
		why, due = c.hurry, gap
		if why == ReasonOrder && c.changed && c.urgent {
			why = ReasonMembership // which does what was ordered, too
		}
	}
	return why, max(due, c.holdUntil), true
}

// plan begins a round if one is due and nothing speaks against it.
func (c *Core) plan() *Plan {
	if !c.ready() {
		return nil
	}
	c.noteRunning()
	why, due, ok := c.round()
	if !ok || c.now.Mono < due {
		return nil
	}
	c.watchClock()
	back := c.goesBack()
	if back {
		why = ReasonOrder
	}
	label, held := c.held(why)
	if held != "" && !(label == labelFrozen && !c.Frozen() && c.stored != nil && (back || c.ordered())) {
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
		tasks: tasks, restricted: restricted, controls: c.controls, news: c.tidings(),
		Why: why, job: c.name, storeID: c.storeID, reported: c.reported(), wall: c.now.Wall,
		force: why == ReasonReported || back, version: c.table.Version(), of: c.table, began: c.now.Mono, reports: c.meter.reports(),
		in: loadbalance.Input{
			Prev: c.stored, Tasks: c.mayOwn(tasks), Ages: c.table.Ages(), Config: c.job.Config, State: c.balance, MembershipOnly: !full,
			Fixed: c.pins(restricted && !back), // a rollback undoes what older pins have done, too
		},
	}
	if back {
		p.target = c.target
	}
	if restricted {
		p.away = c.away()
	}
	switch {
	case full && (c.meter.fresh > 0 || c.balance == nil):
		p.in.Elapsed = c.now.Mono - c.roundLast
	case c.balance == nil:
		// The first loads since the takeover: better than none.
		p.in.Elapsed = c.interval()
	}
	if !restricted {
		c.changed, c.urgent = false, false
		c.flaps.planned(c.now.Mono)
	}
	return p
}

// noteRunning keeps since when somebody is there to own a first assignment.
func (c *Core) noteRunning() {
	running := c.table.AnyRunning()
	if running && !c.running {
		c.runningAt = c.now.Mono
	}
	c.running = running
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
	case c.frozenByOrder():
		return labelFrozen, c.frozenBy()
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
	_, err := assignment.NextGeneration(generation(c.stored), 0, c.now.Wall)
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
		c.alarmAt = c.now.Mono + c.interval()
	}
}

// skip notes that a round is left out, and puts it off.
func (c *Core) skip(why Reason, label, held string) {
	c.finish(Round{Why: why, At: c.now.Wall, Skipped: held, Label: label})
	if why == ReasonLoad {
		c.roundAt = c.now.Mono + c.interval()
	} else {
		c.holdUntil = c.now.Mono + holdFor
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
