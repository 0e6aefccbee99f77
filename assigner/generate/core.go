package generate

import (
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
)

// Config is what all jobs of an assigner share.
type Config struct {
	// ID is the assigner's.
	ID string
	// Start is when the assigner began, by its clocks; the moment of New if it is zero.
	Start Now
}

// How long things are waited for so that what comes together is decided together.
const (
	// firstSettle is from the first running task to the first assignment.
	firstSettle = 300 * time.Millisecond
	// joinSettle is from a task's coming to the round that gives it slices.
	joinSettle = 200 * time.Millisecond
	// roundGap is the least time between two rounds; it is as long as the first took,
	// with its write, so that at most half of all time goes there.
	roundGap, roundGapMost = 20 * time.Millisecond, 2 * time.Second
	// straysFor is how long reports to an assigner that is not preferred are kept: its
	// Distributors may know sooner than itself that it is, and do not repeat which tasks
	// they carry.
	straysFor = 30 * time.Second
	// earlyLeast is the least time from a round by load to an early one.
	earlyLeast = time.Second
	// uneven is how many times the imbalance that a round leaves is what it finds where
	// the next is held after .4 of the interval, at most mostHurried times in a row.
	uneven, mostHurried = 1.15, 2
	// warmSteps is in how many steps new tasks warm up, if rounds by load are rarer.
	warmSteps = 5
	// holdFor is how long a round is put off that may not be held.
	holdFor = time.Second
)

// Core is one job. It joins seven parts, each of which knows one thing, and takes each
// event through those that it touches. What is known is seen in a View. It is not safe
// for concurrent use.
type Core struct {
	*env
	store     stored     // what the store said
	lead      leadership // which assigner decides, and what Distributors tell this one
	members   members    // which tasks there are, and what they carry
	sched     schedule   // when a round is held, and why
	overrides overrides  // what operators have ordered
	jobLease  jobLease   // the change under way in consistent mode
	// Names are whose the names of tasks are, as stored.
	Names  *Names
	rounds rounds // what became of them
}

// New makes the core of a job of which nothing is known yet.
func New(cfg Config, job string, now Now) *Core {
	if cfg.Start.Wall.IsZero() {
		cfg.Start = now
	}
	e := &env{cfg: cfg, name: job}
	e.now.Mono = now.Mono
	e.tick(now)
	c := &Core{
		env: e, store: stored{env: e, loadDue: true}, lead: leadership{env: e}, members: members{env: e, meter: newMeter()},
		overrides: overrides{env: e}, jobLease: jobLease{env: e}, rounds: rounds{env: e},
	}
	c.Names = &Names{env: e, store: &c.store, lead: &c.lead, members: &c.members}
	return c
}

// Preferred says whose the job is, "" when no assigner's.
func (c *Core) Preferred(now Now, id string) {
	c.tick(now)
	if id == c.lead.preferred {
		return
	}
	was := c.lead.isPreferred()
	c.lead.preferred, c.Names.known = id, false
	switch {
	case c.lead.isPreferred():
		c.say(levelInfo, "job taken over", "reason", "this assigner is preferred", "stored", int64(generation(c.store.newest)))
		c.members.resume(&c.store, c.lead.sessions)
		c.members.meter = newMeter()
		c.lead.mine, c.lead.recalled, c.store.loadDue, c.store.retryAt = false, false, true, c.now.Mono
		c.sched.begin(c.now.Mono, c.store.interval(), c.members.table.Version())
		c.rounds.begin()
	case was:
		c.say(levelInfo, "job handed over", "reason", "another assigner is preferred", "preferred", id)
		c.members.keep()
		c.rounds.pending, c.alarm, c.overrides.auditLog = nil, "", nil
		c.store.standBack()
	}
}

// Attach says that a Distributor's stream has begun.
func (c *Core) Attach(now Now, s membership.Session, name string) {
	c.tick(now)
	c.lead.sessions = append(c.lead.sessions, &distributor{session: s, name: name})
	c.members.each(func(t *membership.Table) { t.Attach(c.now.Mono, s, name) })
}

// Detach says that a Distributor's stream has ended.
func (c *Core) Detach(now Now, s membership.Session) {
	c.tick(now)
	c.lead.lose(s)
	c.members.each(func(t *membership.Table) { t.Detach(c.now.Mono, s) })
}

// Heard says when a Distributor last said something, on the monotonic clock.
func (c *Core) Heard(now Now, s membership.Session, at time.Duration) {
	c.tick(now)
	if d := c.lead.distributor(s); d != nil {
		d.heard = max(d.heard, at)
	}
	if c.members.table != nil {
		c.members.table.Heard(c.now.Mono, s, at)
	}
}

// Report is what a Distributor says of one task.
type Report struct {
	membership.Report
	Load *assignment.Load // nil when nothing is said of it
}

// Reports takes in what a Distributor says of tasks; see membership.Table.Report.
func (c *Core) Reports(now Now, s membership.Session, complete bool, reports []Report) {
	c.tick(now)
	c.members.strayAt = c.now.Mono
	renewed := complete && c.members.renew(&c.store, c.lead.sessions) // it has heard of a change
	if c.members.ensure(&c.store, c.lead.sessions) || renewed {
		c.sched.planned = c.members.table.Version()
	}
	c.members.report(s, complete, reports, c.now.Mono-c.sched.roundLast)
	if early := c.members.meter.takeUnforeseen(); early != "" && c.sched.early == "" {
		c.sched.early = early
	}
	c.listen()
}

// Held is a generation that a Distributor or a task says it holds, and the store that it
// is of.
type Held struct {
	Store      uint64
	Generation assignment.Generation
}

// Wanted says that a Distributor asks for the job's assignments, or no longer
// does, and the newest that it and any slicelet of it hold.
func (c *Core) Wanted(now Now, s membership.Session, wants bool, held ...Held) {
	c.tick(now)
	d := c.lead.distributor(s)
	if d == nil {
		return
	}
	if d.wants && !wants {
		c.members.each(func(t *membership.Table) { t.Away(c.now.Mono, s) })
	}
	d.wants = wants
	before := c.store.counts(d)
	if d.reported = held; !wants {
		d.reported = nil
	}
	newest := c.store.counts(d)
	if newest == before || newest <= generation(c.store.newest) {
		return
	}
	if _, err := assignment.NextGeneration(generation(c.store.newest), newest, c.now.Wall); err != nil {
		c.outputs.Ahead = append(c.outputs.Ahead, "reported")
		c.say(levelError, "generation refused", "reason", "it is more than a minute ahead", "distributor", d.name, "error", err)
		return
	}
	// There is something newer than is known here: look.
	c.store.loadDue = true
}

func generation(a *assignment.Assignment) assignment.Generation {
	if a == nil {
		return 0
	}
	return a.Generation()
}
