package protocol

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Times of the protocol. Whatever is waited for without an answer is jittered.
const (
	// dialTimeout is how long a connection may take, up to four times as long after
	// many failures.
	dialTimeout = 2 * time.Second
	// firstWordTimeout is how long a server may say nothing after the hello, or in
	// the middle of an assignment. One that has no assignment asks for it first, and
	// then says UNAVAILABLE.
	firstWordTimeout = 15 * time.Second
	// silentFor is how many of its promised intervals a server may miss.
	silentFor = 3

	// At the start Backup Distributors are used when every Distributor has
	// failed once or none has served within startPatience.
	startPatience = 1500 * time.Millisecond
	// Later, when none has served for lostPatience although each was tried twice,
	// or for lostLimit.
	lostPatience = 3 * time.Second
	lostLimit    = 10 * time.Second
	// A Distributor that has not sent an assignment is trusted with the job, and
	// the Backup Distributor let go, when it has served so long.
	settleTime = 2 * time.Second

	// maxRefusals is how many assignments in a row a server may send that have to
	// be refused before another server is tried.
	maxRefusals = 3
	maxRefusal  = 512 // bytes
)

// Config identifies the subscriber and names its servers, as subscriber.Config says and
// checks.
type Config struct {
	Job, ClientID, Zone   string
	Role                  Role
	Task                  assignment.Task  // a slicelet's
	First                 *slicerv1.Report // a slicelet's; may be nil
	Parts                 bool             // a slicelet's: the part for Task will do
	ClientIndex           *uint32          // that a clerk has by itself; nil: it is given one
	Distributors, Backups []string
	Near                  []string // those of both that are in the subscriber's zone
	Seed                  uint64   // of the order of servers, and of waits
}

// Core is the state machine: a method takes one event, and leaves what is to be done
// about it to Actions. It is not safe for concurrent use.
type Core struct {
	cfg  Config
	rng  *rand.Rand
	dist connector
	back connector
	// scan looks for a Distributor that is heard while dist's is not (see scan.go), or that
	// is of the subscriber's zone, which homing reports (see home.go).
	scan   connector
	homing bool
	last   Link

	held   *assignment.Assignment
	source Source
	status Status
	quotas *wire.Quotas
	report stamped // newest, for the next hello
	index  int     // the clerk's, -1 if none

	// lost is since when no Distributor has served reliably.
	lost         time.Time
	ever         bool // one has served
	patience     float64
	disconnected bool

	count Counters
	out   []Action
}

// Link numbers one attempt at a connection, never the same twice; 0 is none.
type Link uint64

// stamped is a report and when it was made.
type stamped struct {
	*slicerv1.Report
	made time.Time
}

// Verb is what an Action is.
type Verb uint8

const (
	// Dial connects to Addr, as Link, which Linked or Ended answers.
	Dial Verb = iota + 1
	// Send sends Message on Link.
	Send
	// Cut ends Link; nothing more may be said of it.
	Cut
	// Publish is for a change of State.
	Publish
	// Note is for a line of the log: Level, Text and Err.
	Note
)

// Action is one thing to do, in the order given.
type Action struct {
	Do      Verb
	Link    Link
	Addr    string
	Via     Link // has a connection to the server that is meant, of several that Addr may name; 0 for none
	Message *slicerv1.WatchRequest
	Made    time.Time // of the report in Message
	Level   slog.Level
	Text    string
	Err     error // may be nil
}

// New begins with what the cache file had: held may be nil, mode 0, and index, a clerk's,
// -1.
func New(cfg Config, held *assignment.Assignment, mode assignment.Mode, index int) *Core {
	c := &Core{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0)),
		held: held, status: statusFromProto(nil), index: -1,
	}
	c.dist = connector{source: Distributor, addrs: c.shuffled(cfg.Distributors)}
	c.back = connector{source: Backup, addrs: c.shuffled(cfg.Backups)}
	for _, l := range []*connector{&c.dist, &c.back} {
		l.near = NearFirst(l.addrs, cfg.Near)
	}
	c.patience = 1 + c.rng.Float64()/3
	if held != nil {
		c.source, c.status.Mode = Cache, mode
	}
	if cfg.Role == Clerk {
		c.index = index
	}
	if cfg.ClientIndex != nil {
		c.index = int(*cfg.ClientIndex)
	}
	return c
}

func (c *Core) shuffled(addrs []string) []string {
	s := make([]string, len(addrs))
	for i, j := range c.rng.Perm(len(addrs)) {
		s[i] = addrs[j]
	}
	return s
}

func (c *Core) do(a Action) { c.out = append(c.out, a) }

// Actions returns what is to be done, and forgets it. The slice is good until the next
// event.
func (c *Core) Actions() []Action {
	out := c.out
	c.out = c.out[:0]
	return out
}

// Counters counts what has happened since the start.
func (c *Core) Counters() Counters { return c.count }

// State is what is known.
func (c *Core) State() State {
	s := State{Assignment: c.held, Source: c.source, Disconnected: c.disconnected, Status: c.status, Quotas: c.quotas, ClientIndex: c.index}
	switch {
	case c.dist.phase == serving:
		s.Link, s.Peer = Distributor, c.dist.addr()
	case c.back.phase == serving:
		s.Link, s.Peer = Backup, c.back.addr()
	}
	if s.Link != Distributor {
		l := &c.dist
		if len(l.addrs) == 0 {
			l = &c.back
		}
		s.Err = l.reason()
		// What was told last need not be so any more, and would be taken for news at each change.
		s.Status.Conditions = nil
	}
	return s
}

// Start is the first event.
func (c *Core) Start(now time.Time) {
	c.lost, c.report = now, stamped{c.cfg.First, now}
	if len(c.dist.addrs) > 0 {
		c.dist.wait(now, 0)
	}
	c.Tick(now)
}

// Tick does what is due. It may be called at any time, and has to be called at Wake.
func (c *Core) Tick(now time.Time) {
	for _, l := range []*connector{&c.dist, &c.back, &c.scan} {
		switch {
		case l.until.IsZero() || now.Before(l.until):
		case staysAway && l == &c.dist && c.back.phase == serving:
			l.until = time.Time{}
		case l.phase == waiting:
			c.dial(l, 0, now)
		case l.phase == dialing:
			c.fail(l, fmt.Errorf("%w: no connection within %s", ErrUnavailable, l.dialTimeout()), now)
		case l == &c.scan:
			c.fail(l, fmt.Errorf("%w: connected, but no answer within %s", ErrUnavailable, answerWithin), now)
		case l.heard.IsZero():
			c.fail(l, fmt.Errorf("%w: connected, but not a word within %s", ErrUnavailable, firstWordTimeout), now)
		default:
			c.fail(l, fmt.Errorf("%w: silent for %s", ErrUnavailable, now.Sub(l.heard)), now)
		}
	}
	c.settle(now)
}

// dial begins an attempt, on the connection of another link if via names one.
func (c *Core) dial(l *connector, via Link, now time.Time) {
	c.last++
	l.dial(c.last, now)
	c.do(Action{Do: Dial, Link: l.link, Addr: l.addr(), Via: via})
}

// Wake is when Tick is due next; zero if never.
func (c *Core) Wake() time.Time {
	var w time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (w.IsZero() || t.Before(w)) {
			w = t
		}
	}
	earlier(c.dist.until)
	earlier(c.back.until)
	earlier(c.scan.until)
	if c.disconnected && c.dist.phase == serving {
		earlier(c.dist.since.Add(settleTime))
	}
	if !c.disconnected {
		earlier(c.desertedAt())
	}
	return w
}

// Linked says that a connection stands.
func (c *Core) Linked(now time.Time, id Link) {
	l := c.connector(id)
	if l == nil || l.phase != dialing {
		return
	}
	if l == &c.scan {
		c.ask(now)
		return
	}
	l.phase, l.until = open, now.Add(firstWordTimeout)
	l.base = c.held
	c.do(Action{Do: Send, Link: id, Message: c.hello(), Made: c.report.made})
}

// Ended says that a connection is gone, or never came about. The error is that of the
// stream, nil for an orderly end.
func (c *Core) Ended(now time.Time, id Link, err error) {
	if l := c.connector(id); l != nil {
		c.fail(l, Explain(err), now)
		c.settle(now)
	}
}

// connector finds the connector that a link belongs to, nil if it was cut already.
func (c *Core) connector(id Link) *connector {
	switch {
	case id == 0:
	case id == c.dist.link:
		return &c.dist
	case id == c.back.link:
		return &c.back
	case id == c.scan.link:
		return &c.scan
	}
	return nil
}

// fail gives a server up for now.
func (c *Core) fail(l *connector, err error, now time.Time) {
	if l != &c.scan {
		c.count.Failures++
	}
	was := l.phase
	err = &serverError{l.source, l.addr(), err}
	if l.link != 0 {
		c.do(Action{Do: Cut, Link: l.link})
	}
	if l.fail(err, now, c.rng) && l == &c.dist {
		c.lost = now
	}
	if l == &c.scan {
		c.say(slog.LevelDebug, "no better server", err)
		return
	}
	c.do(Action{Do: Publish})
	// A warning comes once in a row. That no Distributor serves is for settle to say.
	level := slog.LevelDebug
	switch {
	case l.verdict != nil && l.verdict != l.told, l == &c.back && l.fails == len(l.addrs):
		level = slog.LevelWarn
	case was == serving || l.fails == len(l.addrs):
		level = slog.LevelInfo
	}
	if l.verdict != nil {
		l.told = l.verdict
	}
	c.say(level, "server not in use", err)
}

func (c *Core) say(level slog.Level, text string, err error) {
	c.do(Action{Do: Note, Level: level, Text: text, Err: err})
}

// Report takes a slicelet's newest report, which takes the place of all before. It is not
// changed, nor may it be.
func (c *Core) Report(made time.Time, r *slicerv1.Report) {
	c.report = stamped{r, made}
	d := &c.dist
	if (d.phase == open || d.phase == serving) && !d.noReports {
		var m struct { // one piece of memory
			of slicerv1.WatchRequest
			is slicerv1.WatchRequest_Report
		}
		m.is.Report, m.of.Message = r, &m.is
		c.do(Action{Do: Send, Link: d.link, Made: made, Message: &m.of})
	}
}

func (c *Core) hello() *slicerv1.WatchRequest {
	h := &slicerv1.Hello{Job: c.cfg.Job, Role: slicerv1.Role(c.cfg.Role), ClientId: c.cfg.ClientID, Zone: c.cfg.Zone, Compressed: true}
	if a := c.held; a != nil {
		h.Generation, h.StoreId, h.Checksum = int64(a.Generation()), a.StoreID(), a.Checksum()
	}
	if c.index >= 0 {
		h.ClientIndex = new(uint32(c.index))
	}
	if c.cfg.Role == Slicelet {
		h.Task, h.Report = wire.TaskToProto(c.cfg.Task), c.report.Report
		h.Task.Index, h.Parts = 0, c.cfg.Parts
		if h.Report != nil {
			h.Task.State = h.Report.State
		}
	}
	return &slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}}
}
