package generate

import (
	"errors"
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

// StoreHas says what the store has of the job, as a watch does. What is known here
// already, or is being written at this moment, is not read again: should the write have
// failed, the store is read for that.
func (c *Core) StoreHas(now Now, x store.Change) {
	c.tick(now)
	s, version := &c.store, c.overrides.inForce.Version
	newest := generation(s.newest)
	if w := s.unsure; w != nil && x.Generation == w.Next.Generation() {
		newest = x.Generation
		if w.target != nil {
			version++ // it takes its rollback off
		}
	}
	if !s.exists || x.Version != s.job.Version || x.Generation != newest || x.Overrides != version {
		s.loadDue = true
	}
}

// Forget makes the core look for a job once more that it knows not to exist.
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
	// Overrides are those in force, and Target is the generation that their rollback
	// names; nil when there is none, and then NoTarget may say why.
	Overrides store.Overrides
	Target    *assignment.Assignment
	NoTarget  error
	// Named says that the names were read, as Load asked for, and Names is what they are.
	Named bool
	Names store.Names
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
		c.store.failed(opRead, l.Err)
		return
	}
	if c.store.failures = 0; c.store.badWrites == 0 {
		c.store.recovered()
	}
	c.store.retryAt = 0
	existed, before := c.store.exists, c.store.job
	c.store.known, c.store.exists, c.store.job, c.store.id = true, l.Exists, l.Job, l.StoreID
	c.Names.weigh()
	if !l.Exists {
		if existed {
			c.say(levelInfo, "job is gone", "reason", "the store says that there is no such job")
		}
		c.overrides.inForce, c.overrides.target, c.overrides.void, c.overrides.auditLog = store.Overrides{}, nil, 0, nil
		c.members.drains = nil
		c.store.newest, c.rounds.balance, c.store.unsure = nil, nil, nil
		c.members.kept, c.members.resumed = nil, false
		c.Names.known, c.Names.stored = false, store.Names{}
		if existed || c.lead.isPreferred() {
			c.members.drop()
		}
		// Otherwise what was reported may be of a job that is made just now.
		return
	}
	if c.lead.isPreferred() && c.members.ensure(&c.store, c.lead.sessions) {
		c.sched.planned = c.members.table.Version()
	}
	c.configured(existed, before)
	c.adopt(l)
	c.settleUnsure(l.Assignment)
	c.replace(l.Assignment)
	c.Names.take(l)
	if l.Recalled && !c.lead.recalled && c.lead.isPreferred() {
		c.lead.recalled = true
		c.members.recall(l)
		c.listen()
	}
	c.members.resumed = c.members.resumed && !c.lead.isPreferred()
	c.lead.mine = c.lead.mine || c.lead.isPreferred()
	if g := c.store.reported(c.lead.sessions); c.lead.isPreferred() && c.store.newest != nil && g > c.store.newest.Generation() {
		if _, err := assignment.NextGeneration(c.store.newest.Generation(), g, c.now.Wall); err == nil {
			c.sched.hurry = ReasonReported
		}
	}
}

// configured takes note of a changed config.
func (c *Core) configured(existed bool, before store.Job) {
	if c.members.table != nil && c.store.job.Config != before.Config {
		c.members.table.Configure(c.now.Mono, c.store.members())
	}
	if !existed || c.store.job.Config == before.Config {
		return
	}
	c.say(levelInfo, "job config changed", "version", c.store.job.Version)
	if c.lead.isPreferred() {
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
		// Another assigner has decided meanwhile.
		if c.members.renew(&c.store, c.lead.sessions) {
			c.sched.planned = c.members.table.Version()
		}
	}
	if c.members.table == nil {
		return
	}
	if c.rounds.pending != nil {
		c.sched.again(c.now.Mono, c.rounds.pending) // it was to follow another one
		c.rounds.pending = nil
	}
	if c.lead.isPreferred() && !own {
		c.say(levelInfo, "assignment stored by another assigner", "generation", int64(generation(a)))
	}
	// A table that is newer than the one that was decided from does not know what was decided.
	c.members.table.Stored(a, own && c.store.ownOf == c.members.table)
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
	case !c.lead.isPreferred() || !c.store.exists:
		return
	case d.target != nil && d.Next == nil:
		c.cannot(d, r)
	case d.Err != nil:
		c.say(levelError, "decision makes no assignment", "round", string(d.Why), "error", d.Err)
		r.Skipped, r.Label = d.Err.Error(), labelDefect
		d.Out.Load = nil
		c.rounds.finish(r)
		c.complete(d)
	case d.Next == nil:
		c.rounds.finish(r)
		c.complete(d)
	case d.quiet(c.store.job.Config.Mode):
		r.Skipped, r.Label = skipQuiet, labelQuiet
		d.Out.Load = nil // it does not come about
		c.rounds.finish(r)
		c.complete(d)
	default:
		c.rounds.pending = d
		d.round = r
		var failures []membership.Penalty
		if c.members.table != nil {
			failures = c.members.table.Penalties(store.MaxPenalties)
		}
		entry, err := d.record(c.cfg.ID, r, failures)
		if err != nil {
			c.say(levelError, "no entry for the history", "generation", int64(entry.Generation), "error", err)
			entry = nil
		}
		d.entry = entry
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
		c.store.recovered()
		c.wrote(d)
		c.replace(d.Next)
	case errors.Is(err, lease.ErrDeposed):
		c.store.recovered()
		c.store.unsure = nil
		c.sched.again(c.now.Mono, d)
		c.store.loadDue = true // another may have stored one of that number
		c.deposed(err)
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		c.store.recovered()
		if errors.As(err, &conflict) && d.in.Prev == nil {
			// The numbers of a job that was deleted and made anew go on.
			c.store.above = max(c.store.above, assignment.Generation(conflict.Current))
		}
		c.store.unsure = nil
		c.outputs.Conflicts++
		c.say(levelInfo, "write lost", "reason", "another assigner wrote first: reading again to decide anew",
			"generation", int64(d.Next.Generation()), "round", string(d.Why), "error", err)
		c.sched.again(c.now.Mono, d)
		c.store.loadDue, c.store.retryAt = true, c.now.Mono
		if c.store.conflicts++; c.store.conflicts > 1 {
			c.store.retryAt += c.backoff(c.store.conflicts, 5*time.Millisecond, time.Second)
		}
	default:
		// Whether it was stored will show when the store can be read again.
		c.store.failed(opWrite, err)
	}
}

// settleUnsure finds out what became of a write with an unknown outcome.
func (c *Core) settleUnsure(a *assignment.Assignment) {
	d := c.store.unsure
	if d == nil {
		return
	}
	if a != nil && a.Generation() == d.Next.Generation() && a.Checksum() == d.Next.Checksum() {
		c.store.recovered()
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
	if d.target != nil && c.overrides.inForce.Version == d.overrides.Version {
		c.overrides.inForce, c.overrides.target = c.overrides.inForce.Fulfilled(), nil
	}
	if d.of == c.members.table || d.of == c.members.kept {
		c.store.own, c.store.ownOf = d.Next.Generation(), d.of
	} // else what it says is news to the table
	r := d.round
	r.Generation = d.Next.Generation()
	if !d.Why.forLoad() {
		r.Skipped, r.Label = "", "" // it was not held for the sake of load
	}
	s := r.Stats
	c.say(levelInfo, "generation written", "generation", int64(r.Generation), "round", string(d.Why),
		"slices", d.Next.NumSlices(), "owners", d.Next.NumOwners(), "decisions", len(r.Decisions),
		"key_churn", s.KeyChurn, "load_churn", s.LoadChurn,
		"imbalance", s.ImbalanceBefore, "imbalance_after", s.ImbalanceAfter, "floor", s.Floor)
	c.rounds.finish(r)
	c.complete(d)
}

// complete notes that a round has been carried out.
func (c *Core) complete(d *Planned) {
	c.sched.nextRound = c.now.Mono + min(max(c.now.Mono-d.began, roundGap), roundGapMost)
	if d.restricted {
		c.sched.holdUntil = c.now.Mono + holdFor // what has happened meanwhile waits
	} else if d.of == c.members.table {
		c.sched.planned = d.version
	}
	if c.members.table != nil {
		c.sched.noteChanged(c.now.Mono, c.members.table.Version(), false)
	}
	if c.sched.hurry == d.Why || c.sched.hurry == ReasonOrder && !d.restricted && d.overrides.Version == c.overrides.inForce.Version {
		c.sched.hurry = ""
	}
	if c.store.newest == nil && d.Next == nil {
		c.sched.runningAt = c.now.Mono // no task may own anything after all
	}
	c.rounds.balance = d.Out.State
	c.sched.decided, c.sched.warming = c.now.Mono, loadbalance.Warming(d.in)
	if !d.in.MembershipOnly {
		c.sched.next(c.now.Mono, c.store.interval(), d.Out.Stats.ImbalanceBefore > uneven*d.Out.Stats.ImbalanceAfter)
		c.sched.calm(c.now.Mono, c.store.interval(), d.Why == ReasonEarly)
		c.members.meter.begin(c.members.has)
	}
	of := generation(c.store.newest)
	if d.Next != nil {
		of = d.Next.Generation()
	}
	c.members.meter.foretell(c.now.Mono, of, d.in.Tasks, d.Out.Load)
}
