package generate

import (
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
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

// Core is one job. It is not safe for concurrent use.
type Core struct {
	cfg    Config
	name   string
	now    Now           // its wall clock is one to be believed
	jumped time.Duration // by how much the assigner's is ahead of that, 0 if it is believed

	// What the store says.
	known    bool // it has answered
	exists   bool
	job      store.Job
	storeID  uint64
	stored   *assignment.Assignment // newest, nil if there is none
	loadDue  bool
	retryAt  time.Duration
	failures int   // of reads in a row
	err      error // of the last attempt to read or write
	errSince time.Duration
	// badWrites is how many writes in a row have failed, whatever was read between them.
	badWrites int

	// Who else there is.
	preferred string
	mine      bool // loaded since this assigner became preferred
	recalled  bool // so are the penalties of tasks
	sessions  []*distributor
	lost      []lost // Distributors whose streams have ended lately

	stragglers []string // room for those of Convergence

	// Deciding.
	table     *membership.Table
	room      []membership.Report // for reports on their way into table
	kept      *membership.Table   // of before the job was handed over; see resume
	outdated  bool                // more has happened since than that
	resumed   bool                // table was kept, and nothing has been loaded since
	keptAt    time.Duration
	strayAt   time.Duration // when a report last came
	meter     meter
	balance   *loadbalance.State
	planned   uint64 // version of the table that the last round has seen
	changed   bool   // the table has changed since
	changedAt time.Duration
	urgent    bool // somebody has to take over slices at once
	flaps     flaps
	holdUntil time.Duration // no round before that
	runningAt time.Duration // when the first task was there for a first assignment
	running   bool
	hurry     Reason        // a round is due at once, for this reason
	roundAt   time.Duration // when the next balancing round is due
	roundLast time.Duration // when loads were last taken in
	decided   time.Duration // when a round was last carried out
	warming   bool          // that has given new tasks only a part of their share
	nextRound time.Duration // no round before that, for the sake of roundGap
	conflicts int           // in a row
	pending   *Planned
	unsure    *Planned // written with an unknown outcome
	own       assignment.Generation
	above     assignment.Generation // a number that the store says must be exceeded
	alarm     string                // a clock or generation is too far ahead
	alarmAt   time.Duration         // when it is raised again

	tenure tenure // of a job in consistent mode

	// What operators have ordered.
	controls store.Controls
	target   *assignment.Assignment // of the rollback that is to be carried out, nil if none
	void     int64                  // number of an order that cannot be carried out
	voidWhy  string
	news     []string // what has happened to tasks since the last round

	// What is to be noted in the history; see notes.go.
	notes        []Note
	noteAt       time.Duration // no attempt before that
	noteFailures int           // in a row
	freezeOrder  int64         // of the freeze by order that is in force, 0 if none is
	freezeSeen   time.Duration // since when it is known here

	last     Round  // the last one that has something to tell
	lastSkip string // label of the last skipped round, so that it is said once
	floor    float64
	effects  Effects
}

// distributor is what is known of one attached Distributor about this job.
type distributor struct {
	session  membership.Session
	name     string
	wants    bool
	reported []Held
	acks     *Acks
	heard    time.Duration // when it last said something, as far as known
}

// New makes the core of a job of which nothing is known yet.
func New(cfg Config, job string, now Now) *Core {
	if cfg.Start.Wall.IsZero() {
		cfg.Start = now
	}
	c := &Core{cfg: cfg, name: job, loadDue: true, meter: newMeter()}
	c.now.Mono = now.Mono
	c.tick(now)
	return c
}

func (c *Core) tick(now Now) {
	c.now.Wall, c.jumped = now.Since(c.cfg.Start)
	c.now.Mono = max(c.now.Mono, now.Mono)
}

// isPreferred says whether this assigner takes the job's decisions.
func (c *Core) isPreferred() bool { return c.preferred == c.cfg.ID && c.cfg.ID != "" }

// Preferred says whose the job is, "" when nobody's.
func (c *Core) Preferred(now Now, id string) {
	c.tick(now)
	if id == c.preferred {
		return
	}
	was := c.isPreferred()
	c.preferred = id
	switch {
	case c.isPreferred():
		c.say(levelInfo, "job taken over", "reason", "this assigner is preferred", "stored", int64(generation(c.stored)))
		c.resume()
		c.ensureTable()
		c.mine, c.recalled, c.loadDue, c.retryAt = false, false, true, c.now.Mono
		c.roundAt = c.now.Mono + c.interval()
		c.hurry, c.planned, c.running, c.changed = ReasonTakeover, c.table.Version(), false, false
		c.balance, c.meter = nil, newMeter()
		c.roundLast, c.holdUntil, c.last, c.floor = c.now.Mono, 0, Round{}, 0
	case was:
		c.say(levelInfo, "job handed over", "reason", "another assigner is preferred", "preferred", id)
		c.kept, c.keptAt, c.resumed, c.outdated = c.table, c.now.Mono, false, false
		c.table, c.pending, c.alarm, c.notes = nil, nil, "", nil
		if c.badWrites > 0 && c.failures == 0 { // it writes no more, and could read
			c.err = nil
		}
		c.badWrites = 0
	}
}

// resume takes up the table that was kept when the job was handed over, if it has
// come back soon: Distributors that have heard nothing of it see no reason to say once
// more whom they carry. If anything has been decided or said anew meanwhile, that is all
// that is taken from it.
func (c *Core) resume() {
	switch {
	case c.kept == nil || c.now.Mono-c.keptAt > straysFor:
	case c.outdated:
		c.ensureTable()
		c.table.Follow(c.now.Mono, c.kept)
	default:
		c.table, c.resumed = c.kept, true
		c.table.Resume(c.now.Mono)
	}
	c.kept = nil
}

// ensureTable makes a table that knows what is known now. Reports that came just
// before count.
func (c *Core) ensureTable() {
	if c.table != nil {
		return
	}
	c.table = membership.New(members(c.job.Config), c.now.Mono, c.stored)
	for _, d := range c.sessions {
		c.table.Attach(c.now.Mono, d.session, d.name)
	}
	c.planned = c.table.Version()
}

func (c *Core) interval() time.Duration {
	if i := c.job.Config.Balance.Interval; i > 0 {
		return i
	}
	return assignment.JobConfig{}.WithDefaults().Balance.Interval
}

// renew gives up what was known before the job was handed over, but for whom the
// Distributors carry.
func (c *Core) renew() {
	c.outdated = true
	if was := c.table; c.resumed {
		c.table, c.resumed = nil, false
		c.ensureTable()
		c.table.Follow(c.now.Mono, was)
	}
}

// Attach says that a Distributor's stream has begun.
func (c *Core) Attach(now Now, s membership.Session, name string) {
	c.tick(now)
	c.sessions = append(c.sessions, &distributor{session: s, name: name})
	for _, t := range c.tables() {
		t.Attach(c.now.Mono, s, name)
	}
}

// Detach says that a Distributor's stream has ended.
func (c *Core) Detach(now Now, s membership.Session) {
	c.tick(now)
	if d := c.distributor(s); d != nil {
		c.sessions = slices.DeleteFunc(c.sessions, func(o *distributor) bool { return o == d })
		c.lose(d)
	}
	for _, t := range c.tables() {
		t.Detach(c.now.Mono, s)
	}
}

// tables are the one that counts and the one that is kept, as far as they are there.
func (c *Core) tables() []*membership.Table {
	return slices.DeleteFunc([]*membership.Table{c.table, c.kept}, func(t *membership.Table) bool { return t == nil })
}

// Heard says when a Distributor last said something, on the monotonic clock.
func (c *Core) Heard(now Now, s membership.Session, at time.Duration) {
	c.tick(now)
	if d := c.distributor(s); d != nil {
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
	c.strayAt = c.now.Mono
	if complete { // it has heard of a change
		c.renew()
	}
	c.ensureTable()
	rs := c.room[:0]
	for i := range reports {
		rs = append(rs, reports[i].Report)
	}
	c.room = rs
	if c.kept != nil {
		c.kept.Report(c.now.Mono, s, false, rs)
	}
	c.table.Report(c.now.Mono, s, complete, rs)
	for i := range reports {
		if r := &reports[i]; r.Load != nil && !r.Disconnected {
			c.meter.add(r.Task.Name, r.Task.Incarnation, s, r.Sequence, r.Load, c.now.Mono-c.roundLast)
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
	d := c.distributor(s)
	if d == nil {
		return
	}
	d.wants = wants
	before := c.counts(d)
	if d.reported = held; !wants {
		d.reported = nil
	}
	newest := c.counts(d)
	if newest == before || newest <= generation(c.stored) {
		return
	}
	if _, err := assignment.NextGeneration(generation(c.stored), newest, c.now.Wall); err != nil {
		c.effects.Ahead = append(c.effects.Ahead, "reported")
		c.say(levelError, "generation refused", "reason", "it is more than a minute ahead", "distributor", d.name, "error", err)
		return
	}
	// Somebody holds something newer than is known here: look.
	c.loadDue = true
}

// reported is the newest generation that any Distributor or task says it holds.
func (c *Core) reported() assignment.Generation {
	newest := c.above
	for _, d := range c.sessions {
		newest = max(newest, c.counts(d))
	}
	return newest
}

// counts is the newest that a Distributor has reported, of the job's store: before that
// is known all may be.
func (c *Core) counts(d *distributor) (newest assignment.Generation) {
	for _, h := range d.reported {
		if !c.known || h.Store == c.storeID {
			newest = max(newest, h.Generation)
		}
	}
	return newest
}

func (c *Core) distributor(s membership.Session) *distributor {
	for _, d := range c.sessions {
		if d.session == s {
			return d
		}
	}
	return nil
}

func generation(a *assignment.Assignment) assignment.Generation {
	if a == nil {
		return 0
	}
	return a.Generation()
}
