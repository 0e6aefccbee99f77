package generate

import (
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// Now is one moment on two clocks.
type Now struct {
	// Mono never jumps: all waiting is measured on it.
	Mono time.Duration
	// Wall numbers generations.
	Wall time.Time
}

// Since compares the two clocks: a wall clock that has gained more than
// assignment.MaxAhead on the monotonic one since start is not believed. Then jumped is
// by how much, and wall is what it would show had it not.
func (n Now) Since(start Now) (wall time.Time, jumped time.Duration) {
	passed := n.Mono - start.Mono
	gained := n.Wall.Sub(start.Wall)
	if gained <= assignment.MaxAhead+passed {
		return n.Wall, 0
	}
	return start.Wall.Add(passed), gained - passed
}

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
	// straysFor is how long reports to an assigner that is not preferred are kept:
	// its Distributors may know sooner than itself that it is, and do not repeat
	// whom they carry.
	straysFor = 30 * time.Second
	// warmSteps is in how many steps new tasks warm up, if rounds by load are rarer.
	warmSteps = 5
	// holdFor is how long a round is put off that may not be held.
	holdFor = time.Second
)

// Core is one job. It joins five parts, each of which knows one thing, and has what they
// share. It is not safe for concurrent use.
type Core struct {
	cfg    Config
	name   string
	now    Now           // its wall clock is one to be believed
	jumped time.Duration // by how much the assigner's is ahead of that, 0 if it is believed

	store     stored     // what the store said
	lead      leadership // which assigner decides, and what Distributors tell this one
	sched     schedule   // when a round is held, and why
	overrides overrides  // what operators have ordered
	tenure    tenure     // the change under way in consistent mode

	table   *membership.Table
	room    []membership.Report // for reports on their way into table
	meter   meter
	balance *loadbalance.State
	pending *Planned // to be written next

	alarm    string        // a clock or generation is too far ahead
	alarmAt  time.Duration // when it is raised again
	last     Round         // the last one that has something to tell
	lastSkip string        // label of the last skipped round, so that it is said once
	floor    float64
	effects  Effects
}

// New makes the core of a job of which nothing is known yet.
func New(cfg Config, job string, now Now) *Core {
	if cfg.Start.Wall.IsZero() {
		cfg.Start = now
	}
	c := &Core{cfg: cfg, name: job, store: stored{loadDue: true}, meter: newMeter()}
	c.now.Mono = now.Mono
	c.tick(now)
	return c
}

func (c *Core) tick(now Now) {
	c.now.Wall, c.jumped = now.Since(c.cfg.Start)
	c.now.Mono = max(c.now.Mono, now.Mono)
}

// isPreferred reports whether this assigner takes the job's decisions.
func (c *Core) isPreferred() bool { return c.lead.preferred == c.cfg.ID && c.cfg.ID != "" }

// Preferred says whose the job is, "" when nobody's.
func (c *Core) Preferred(now Now, id string) {
	c.tick(now)
	if id == c.lead.preferred {
		return
	}
	was := c.isPreferred()
	c.lead.preferred = id
	switch {
	case c.isPreferred():
		c.say(levelInfo, "job taken over", "reason", "this assigner is preferred", "stored", int64(generation(c.store.newest)))
		c.resume()
		c.ensureTable()
		c.lead.mine, c.lead.recalled, c.store.loadDue, c.store.retryAt = false, false, true, c.now.Mono
		c.sched.roundAt = c.now.Mono + c.store.interval()
		c.sched.hurry, c.sched.planned, c.sched.running, c.sched.changed = ReasonTakeover, c.table.Version(), false, false
		c.balance, c.meter = nil, newMeter()
		c.sched.roundLast, c.sched.holdUntil, c.last, c.floor = c.now.Mono, 0, Round{}, 0
	case was:
		c.say(levelInfo, "job handed over", "reason", "another assigner is preferred", "preferred", id)
		c.lead.kept, c.lead.keptAt, c.lead.resumed, c.lead.outdated = c.table, c.now.Mono, false, false
		c.table, c.pending, c.alarm, c.overrides.notes = nil, nil, "", nil
		if c.store.badWrites > 0 && c.store.failures == 0 { // it writes no more, and could read
			c.store.err = nil
		}
		c.store.badWrites = 0
	}
}

// resume takes up the table that was kept when the job was handed over, if it has
// come back soon: Distributors that have heard nothing of it see no reason to say once
// more whom they carry. If anything has been decided or said anew meanwhile, that is all
// that is taken from it.
func (c *Core) resume() {
	switch {
	case c.lead.kept == nil || c.now.Mono-c.lead.keptAt > straysFor:
	case c.lead.outdated:
		c.ensureTable()
		c.table.Follow(c.now.Mono, c.lead.kept)
	default:
		c.table, c.lead.resumed = c.lead.kept, true
		c.table.Resume(c.now.Mono)
	}
	c.lead.kept = nil
}

// ensureTable makes a table that knows what is known now. Reports that came just
// before count.
func (c *Core) ensureTable() {
	if c.table != nil {
		return
	}
	c.table = membership.New(members(c.store.job.Config), c.now.Mono, c.store.newest)
	for _, d := range c.lead.sessions {
		c.table.Attach(c.now.Mono, d.session, d.name)
	}
	c.sched.planned = c.table.Version()
}

// renew gives up what was known before the job was handed over, but for whom the
// Distributors carry.
func (c *Core) renew() {
	c.lead.outdated = true
	if was := c.table; c.lead.resumed {
		c.table, c.lead.resumed = nil, false
		c.ensureTable()
		c.table.Follow(c.now.Mono, was)
	}
}

// Attach says that a Distributor's stream has begun.
func (c *Core) Attach(now Now, s membership.Session, name string) {
	c.tick(now)
	c.lead.sessions = append(c.lead.sessions, &distributor{session: s, name: name})
	for _, t := range c.tables() {
		t.Attach(c.now.Mono, s, name)
	}
}

// Detach says that a Distributor's stream has ended.
func (c *Core) Detach(now Now, s membership.Session) {
	c.tick(now)
	if d := c.lead.distributor(s); d != nil {
		c.lead.sessions = slices.DeleteFunc(c.lead.sessions, func(o *distributor) bool { return o == d })
		c.lead.lose(c.now.Mono, d)
	}
	for _, t := range c.tables() {
		t.Detach(c.now.Mono, s)
	}
}

// tables are the one that counts and the one that is kept, as far as they are there.
func (c *Core) tables() []*membership.Table {
	return slices.DeleteFunc([]*membership.Table{c.table, c.lead.kept}, func(t *membership.Table) bool { return t == nil })
}

// Heard says when a Distributor last said something, on the monotonic clock.
func (c *Core) Heard(now Now, s membership.Session, at time.Duration) {
	c.tick(now)
	if d := c.lead.distributor(s); d != nil {
		d.heard = max(d.heard, at)
	}
	if c.table != nil {
		c.table.Heard(c.now.Mono, s, at)
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
	c.lead.strayAt = c.now.Mono
	if complete { // it has heard of a change
		c.renew()
	}
	c.ensureTable()
	rs := c.room[:0]
	for i := range reports {
		rs = append(rs, reports[i].Report)
	}
	c.room = rs
	if c.lead.kept != nil {
		c.lead.kept.Report(c.now.Mono, s, false, rs)
	}
	c.table.Report(c.now.Mono, s, complete, rs)
	for i := range reports {
		if r := &reports[i]; r.Load != nil && !r.Disconnected {
			c.meter.add(r.Task.Name, r.Task.Incarnation, s, r.Sequence, r.Load, c.now.Mono-c.sched.roundLast)
		}
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
		c.effects.Ahead = append(c.effects.Ahead, "reported")
		c.say(levelError, "generation refused", "reason", "it is more than a minute ahead", "distributor", d.name, "error", err)
		return
	}
	// Somebody holds something newer than is known here: look.
	c.store.loadDue = true
}

func generation(a *assignment.Assignment) assignment.Generation {
	if a == nil {
		return 0
	}
	return a.Generation()
}
