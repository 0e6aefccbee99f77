package generate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/loadbalance"
)

// StoreChanged says that the job's config or assignment may have changed.
func (c *Core) StoreChanged(now Now) {
	c.tick(now)
	c.store.loadDue = true
}

// Forget has a job that there is none of looked for once more.
func (c *Core) Forget(now Now) {
	if !c.store.exists {
		c.StoreChanged(now)
		c.store.known = false
	}
}

// Loaded is the answer to Load.
type Loaded struct {
	// Err is why nothing could be read. It is not store.ErrNotFound.
	Err error
	// Exists is false when the store says that there is no such job.
	Exists     bool
	Job        store.Job
	StoreID    uint64
	Assignment *assignment.Assignment // nil when there is none yet
	// Controls are the orders in force, and Target is the generation that their
	// rollback names; nil when there is none, and then NoTarget may say why.
	Controls store.Controls
	Target   *assignment.Assignment
	NoTarget error
	// Recalled says that the history was read, as Load asked for, and that Penalties
	// were those of the tasks at PenaltiesAt.
	Recalled    bool
	Penalties   []store.Penalty
	PenaltiesAt time.Time
}

// Loaded takes in the answer to Load.
func (c *Core) Loaded(now Now, l Loaded) {
	c.tick(now)
	if !l.Exists && l.Err == nil && c.store.loadDue {
		return // it has changed meanwhile: there may be one now
	}
	if l.Err != nil {
		c.failed(opRead, l.Err)
		return
	}
	if c.store.failures = 0; c.store.badWrites == 0 {
		c.recovered()
	}
	c.store.retryAt = 0
	existed, before := c.store.exists, c.store.job
	c.store.known, c.store.exists, c.store.job, c.store.id = true, l.Exists, l.Job, l.StoreID
	if !l.Exists {
		if existed {
			c.say(levelInfo, "job is gone", "reason", "the store says that there is no such job")
		}
		c.overrides.controls, c.overrides.target, c.overrides.void, c.overrides.notes = store.Controls{}, nil, 0, nil
		c.store.newest, c.balance, c.store.unsure = nil, nil, nil
		c.lead.kept, c.lead.resumed = nil, false
		if existed || c.isPreferred() {
			c.table, c.meter = nil, newMeter()
		}
		// Otherwise what was reported may be of a job that is made just now.
		return
	}
	if c.table == nil && c.isPreferred() {
		c.ensureTable()
	}
	c.configured(existed, before)
	c.obey(l)
	c.settleUnsure(l.Assignment)
	c.replace(l.Assignment)
	c.recall(l)
	c.lead.resumed = c.lead.resumed && !c.isPreferred()
	c.lead.mine = c.lead.mine || c.isPreferred()
	if g := c.store.reported(c.lead.sessions); c.isPreferred() && c.store.newest != nil && g > c.store.newest.Generation() {
		if _, err := assignment.NextGeneration(c.store.newest.Generation(), g, c.now.Wall); err == nil {
			c.sched.hurry = ReasonReported
		}
	}
}

// recall has the tasks' failures from before a takeover count. Clocks that differ make
// that inexact, and no more.
func (c *Core) recall(l Loaded) {
	if !l.Recalled || c.lead.recalled || !c.isPreferred() || c.table == nil {
		return
	}
	c.lead.recalled = true
	before := make([]membership.Penalty, len(l.Penalties))
	for i, p := range l.Penalties {
		before[i] = membership.Penalty(p)
	}
	c.table.Recall(c.now.Mono, before, c.now.Wall.Sub(l.PenaltiesAt))
	c.listen()
}

// configured takes note of a changed config.
func (c *Core) configured(existed bool, before store.Job) {
	if c.table != nil && c.store.job.Config != before.Config {
		c.table.Configure(c.now.Mono, members(c.store.job.Config))
	}
	if !existed || c.store.job.Config == before.Config {
		return
	}
	c.say(levelInfo, "job config changed", "version", c.store.job.Version)
	if c.isPreferred() {
		c.sched.hurry = ReasonConfig
	}
}

// replace makes a the newest stored assignment.
func (c *Core) replace(a *assignment.Assignment) {
	if c.store.newest != nil && a != nil && c.store.newest.Generation() == a.Generation() && c.store.newest.StoreID() == a.StoreID() {
		return // keep the one that others may share
	}
	if c.store.newest == nil && a == nil {
		return
	}
	c.store.newest = a
	own := a != nil && a.Generation() == c.store.own
	if !own {
		c.renew() // another assigner has decided meanwhile
	}
	if c.table == nil {
		return
	}
	if c.pending != nil {
		c.sched.again(c.now.Mono, c.pending) // it was to follow another one
		c.pending = nil
	}
	if c.isPreferred() && !own {
		c.say(levelInfo, "assignment stored by another assigner", "generation", int64(generation(a)))
	}
	c.table.Stored(a, own)
	c.listen()
	if !own && !c.sched.changed {
		c.sched.changed, c.sched.changedAt = true, c.now.Mono
	}
}

// Planned takes in what a plan came to.
func (c *Core) Planned(now Now, d *Planned) {
	c.tick(now)
	r := Round{Why: d.Why, At: c.now.Wall, Took: now.Mono - d.began, Stats: d.Out.Stats, Decisions: d.Out.Decisions}
	if s := d.Out.Stats.Skipped; s != loadbalance.ReasonMembership {
		r.Skipped, r.Label = string(s), string(s)
	}
	r.Decisions = slices.DeleteFunc(r.Decisions, func(x loadbalance.Decision) bool {
		return x.Kind == loadbalance.KindSkip && x.Reason == d.Out.Stats.Skipped // Skipped says it
	})
	if d.Next != nil && c.store.job.Config.Mode == assignment.Consistent && !single(d.Next) {
		d.Next, d.Err = nil, errors.New("a key would have several owners, in consistent mode")
	}
	switch {
	case !c.isPreferred() || !c.store.exists:
		return
	case d.target != nil && d.Next == nil:
		c.cannot(d, r)
	case d.Err != nil:
		c.say(levelError, "decision makes no assignment", "round", string(d.Why), "error", d.Err)
		r.Skipped, r.Label = d.Err.Error(), labelDefect
		c.finish(r)
		c.complete(d)
	case d.Next == nil:
		c.finish(r)
		c.complete(d)
	case c.quiet(d):
		r.Skipped, r.Label = skipQuiet, labelQuiet
		c.finish(r)
		c.complete(d)
	default:
		c.pending = d
		d.round = r
		d.entry = c.entry(d, r)
	}
}

// Written takes in what came of a Write.
func (c *Core) Written(now Now, err error) {
	c.tick(now)
	d := c.store.unsure
	if d == nil {
		return // the job has gone meanwhile
	}
	var conflict *store.ConflictError
	switch {
	case err == nil:
		c.recovered()
		c.wrote(d)
		c.replace(d.Next)
	case errors.Is(err, lease.ErrDeposed):
		c.recovered()
		c.store.unsure = nil
		c.sched.again(c.now.Mono, d)
		c.deposed(err)
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		c.recovered()
		if errors.As(err, &conflict) && d.in.Prev == nil {
			// The numbers of a job that was deleted and made anew go on.
			c.store.above = max(c.store.above, assignment.Generation(conflict.Current))
		}
		c.store.unsure = nil
		c.effects.Conflicts++
		c.say(levelInfo, "write lost", "reason", "somebody else wrote first: reading again to decide anew",
			"generation", int64(d.Next.Generation()), "round", string(d.Why), "error", err)
		c.sched.again(c.now.Mono, d)
		c.store.loadDue, c.store.retryAt = true, c.now.Mono
		if c.store.conflicts++; c.store.conflicts > 1 {
			c.store.retryAt += c.backoff(c.store.conflicts, 5*time.Millisecond, time.Second)
		}
	default:
		// Whether it was stored will show when the store can be read again.
		c.failed(opWrite, err)
	}
}

// settleUnsure finds out what became of a write with an unknown outcome.
func (c *Core) settleUnsure(a *assignment.Assignment) {
	d := c.store.unsure
	if d == nil {
		return
	}
	if a != nil && a.Generation() == d.Next.Generation() && a.Checksum() == d.Next.Checksum() {
		c.recovered()
		c.wrote(d)
		return
	}
	c.store.unsure = nil
	c.say(levelInfo, "write did not happen", "generation", int64(d.Next.Generation()), "round", string(d.Why))
	c.sched.again(c.now.Mono, d)
}

// wrote notes that the store holds what was planned.
func (c *Core) wrote(d *Planned) {
	c.store.unsure, c.store.conflicts, c.store.above = nil, 0, 0
	if d.target != nil && c.overrides.controls.Version == d.controls.Version {
		c.overrides.controls, c.overrides.target = c.overrides.controls.Fulfilled(), nil
	}
	if d.of == c.table || d.of == c.lead.kept {
		c.store.own = d.Next.Generation()
	} // else what it says is news to the table
	r := d.round
	r.Generation = d.Next.Generation()
	if d.Why != ReasonLoad {
		r.Skipped, r.Label = "", "" // it was not held for the sake of load
	}
	s := r.Stats
	c.say(levelInfo, "generation written", "generation", int64(r.Generation), "round", string(d.Why),
		"slices", d.Next.NumSlices(), "owners", d.Next.NumOwners(), "decisions", len(r.Decisions),
		"key_churn", s.KeyChurn, "load_churn", s.LoadChurn,
		"imbalance", s.ImbalanceBefore, "imbalance_after", s.ImbalanceAfter, "floor", s.Floor)
	c.finish(r)
	c.complete(d)
}

// complete notes that a round has been carried out.
func (c *Core) complete(d *Planned) {
	c.sched.nextRound = c.now.Mono + min(max(c.now.Mono-d.began, roundGap), roundGapMost)
	if d.restricted {
		c.sched.holdUntil = c.now.Mono + holdFor // what has happened meanwhile waits
	} else if d.of == c.table {
		c.sched.planned = d.version
	}
	if c.table != nil {
		c.sched.noteChanged(c.now.Mono, c.table.Version(), false)
	}
	if c.sched.hurry == d.Why || c.sched.hurry == ReasonOrder && !d.restricted && d.controls.Version == c.overrides.controls.Version {
		c.sched.hurry = ""
	}
	if c.store.newest == nil && d.Next == nil {
		c.sched.runningAt = c.now.Mono // nobody to own anything after all
	}
	c.balance = d.Out.State
	c.sched.decided, c.sched.warming = c.now.Mono, loadbalance.Warming(d.in)
	if !d.in.MembershipOnly {
		c.sched.roundLast, c.sched.roundAt = c.now.Mono, c.now.Mono+c.store.interval()
		c.meter.begin(c.carries)
	}
}

func (c *Core) carries(task string) bool {
	if c.table == nil {
		return false
	}
	return c.table.Has(task)
}

// failed notes that the store did not do its part. Writes that fail are counted apart:
// a store without space is read without fault between them.
func (c *Core) failed(what string, err error) {
	if c.store.err == nil {
		c.store.errSince = c.now.Mono
	}
	most := 5 * time.Second
	if errors.Is(err, store.ErrCorrupt) {
		most = 30 * time.Second
	}
	n := &c.store.failures
	if what == opWrite {
		n = &c.store.badWrites
	}
	wait := c.backoff(*n, 100*time.Millisecond, most)
	*n++
	c.store.err = fmt.Errorf("%s: %w", what, err)
	c.store.loadDue, c.store.retryAt = true, c.now.Mono+wait
	c.say(levelWarn, "store failed", "error", c.store.err.Error(), "failures", *n, "again_in", wait.String())
}

// What failed is called.
const (
	opRead  = "read"
	opWrite = "write"
)

// recovered notes that the store works: it has answered a write, or a read while no write
// had failed.
func (c *Core) recovered() {
	if c.store.err != nil {
		c.say(levelInfo, "store works again", "after", (c.now.Mono - c.store.errSince).String())
	}
	c.store.err, c.store.failures, c.store.badWrites = nil, 0, 0
}

// finish notes what became of a round. Rounds that are left out for one and the
// same reason are said once.
func (c *Core) finish(r Round) {
	skipped := r.Skipped != "" && r.Generation == 0
	if skipped {
		level := levelInfo
		if r.Label == c.lastSkip {
			level = levelDebug
		}
		c.say(level, "round skipped", "round", string(r.Why), "reason", r.Skipped)
		c.lastSkip = r.Label
	} else if r.Why == ReasonLoad || r.Generation != 0 {
		c.lastSkip = ""
	}
	if skipped || r.Why == ReasonLoad || r.Generation != 0 {
		c.last = r
	}
	if r.Stats.Floor > 0 {
		c.floor = r.Stats.Floor
	}
	c.effects.Rounds = append(c.effects.Rounds, r)
}
