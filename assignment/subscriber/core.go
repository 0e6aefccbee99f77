package subscriber

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

// core is the protocol, purely: its methods take an event and the time, change
// the state, and leave in out what is to be done about it, in order.
type core struct {
	cfg  *Config
	rng  *rand.Rand
	dist lane
	back lane
	// scout looks for a Distributor that is heard while dist's is not; see scout.go.
	scout lane
	last  linkID
	memo  *wire.Memo

	held   *assignment.Assignment
	source Source
	status Status
	report stamped // newest, for the next hello
	index  int     // the clerk's, -1 if none

	// lost is since when no Distributor has served reliably.
	lost     time.Time
	ever     bool // one has served
	patience float64
	alone    bool

	count Counters
	out   []action
}

type linkID uint64

// stamped is a report and when it was made.
type stamped struct {
	*slicerv1.Report
	made time.Time
}

type verb uint8

const (
	dial    verb = iota + 1 // addr, as link; on the connection of via, if there is one
	send                    // msg, on link
	cut                     // link; nothing more is heard of it
	publish                 // the state has changed
	note                    // a line for the log
)

type action struct {
	do    verb
	link  linkID
	addr  string
	via   linkID // of dial: has a connection to the server that is meant, 0 for none
	msg   *slicerv1.WatchRequest
	made  time.Time // of the report in msg
	level slog.Level
	text  string
	err   error
}

// newCore begins with what the cache file had, if anything.
func newCore(cfg *Config, seed uint64, cached *cacheEntry) *core {
	c := &core{
		cfg: cfg, rng: rand.New(rand.NewPCG(seed, 0)),
		status: statusFromProto(nil), index: -1,
	}
	c.dist = lane{source: Distributor, addrs: c.shuffled(cfg.Distributors)}
	c.back = lane{source: Backup, addrs: c.shuffled(cfg.Backups)}
	c.patience = 1 + c.rng.Float64()/3
	if cached != nil {
		c.held, c.source, c.status.Mode = cached.assignment, Cache, cached.mode
		if cfg.Role == Clerk && cached.client == clientHash(cfg.ClientID) {
			c.index = cached.index
		}
	}
	if cfg.ClientIndex != nil {
		c.index = int(*cfg.ClientIndex)
	}
	return c
}

func (c *core) shuffled(addrs []string) []string {
	s := make([]string, len(addrs))
	for i, j := range c.rng.Perm(len(addrs)) {
		s[i] = addrs[j]
	}
	return s
}

func (c *core) do(a action) { c.out = append(c.out, a) }

// take empties out. What it returns is good until something is taken in again.
func (c *core) take() []action {
	out := c.out
	c.out = c.out[:0]
	return out
}

func (c *core) state() State {
	s := State{Assignment: c.held, Source: c.source, Alone: c.alone, Status: c.status, ClientIndex: c.index}
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
	}
	return s
}

func (c *core) start(now time.Time) {
	c.lost, c.report = now, stamped{c.cfg.First, now}
	if len(c.dist.addrs) > 0 {
		c.dist.wait(now, 0)
	}
	c.tick(now)
}

// tick does what is due. It may be called at any time, and has to be called at wake.
func (c *core) tick(now time.Time) {
	for _, l := range []*lane{&c.dist, &c.back, &c.scout} {
		switch {
		case l.until.IsZero() || now.Before(l.until):
		case staysAway && l == &c.dist && c.back.phase == serving:
			l.until = time.Time{}
		case l.phase == waiting:
			c.dial(l, 0, now)
		case l.phase == dialing:
			c.fail(l, fmt.Errorf("%w: no connection within %s", ErrUnavailable, l.dialTimeout()), now)
		case l == &c.scout:
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
func (c *core) dial(l *lane, via linkID, now time.Time) {
	c.last++
	l.dial(c.last, now)
	c.do(action{do: dial, link: l.link, addr: l.addr(), via: via})
}

// wake is when tick is due next; zero if never.
func (c *core) wake() time.Time {
	var w time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (w.IsZero() || t.Before(w)) {
			w = t
		}
	}
	earlier(c.dist.until)
	earlier(c.back.until)
	earlier(c.scout.until)
	if c.alone && c.dist.phase == serving {
		earlier(c.dist.since.Add(settleTime))
	}
	if !c.alone {
		earlier(c.desertedAt())
	}
	return w
}

// linked: the connection stands.
func (c *core) linked(id linkID, now time.Time) {
	l := c.lane(id)
	if l == nil || l.phase != dialing {
		return
	}
	if l == &c.scout {
		c.ask(now)
		return
	}
	l.phase, l.until = open, now.Add(firstWordTimeout)
	l.base, l.asm = c.held, wire.Assembler{Memo: c.memo}
	c.do(action{do: send, link: id, msg: c.hello(), made: c.report.made})
}

// ended: the connection is gone, or never came about.
func (c *core) ended(id linkID, err error, now time.Time) {
	if l := c.lane(id); l != nil {
		c.fail(l, explain(err), now)
		c.settle(now)
	}
}

// lane finds whom a link belongs to, nil if it was cut already.
func (c *core) lane(id linkID) *lane {
	switch {
	case id == 0:
	case id == c.dist.link:
		return &c.dist
	case id == c.back.link:
		return &c.back
	case id == c.scout.link:
		return &c.scout
	}
	return nil
}

// fail gives a server up for now.
func (c *core) fail(l *lane, err error, now time.Time) {
	if l != &c.scout {
		c.count.Failures++
	}
	was := l.phase
	err = &serverError{l.source, l.addr(), err}
	if l.link != 0 {
		c.do(action{do: cut, link: l.link})
	}
	if l.fail(err, now, c.rng) && l == &c.dist {
		c.lost = now
	}
	if l == &c.scout {
		c.say(slog.LevelDebug, "no better server", err)
		return
	}
	c.do(action{do: publish})
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

func (c *core) say(level slog.Level, text string, err error) {
	c.do(action{do: note, level: level, text: text, err: err})
}

// newReport is the slicelet's newest; it takes the place of all before.
func (c *core) newReport(r stamped) {
	c.report = r
	d := &c.dist
	if (d.phase == open || d.phase == serving) && !d.mute {
		var m struct { // one piece of memory
			of slicerv1.WatchRequest
			is slicerv1.WatchRequest_Report
		}
		m.is.Report, m.of.Message = r.Report, &m.is
		c.do(action{do: send, link: d.link, made: r.made, msg: &m.of})
	}
}

func (c *core) hello() *slicerv1.WatchRequest {
	h := &slicerv1.Hello{Job: c.cfg.Job, Role: slicerv1.Role(c.cfg.Role), ClientId: c.cfg.ClientID, Zone: c.cfg.Zone}
	if a := c.held; a != nil {
		h.Generation, h.StoreId, h.Checksum = int64(a.Generation()), a.StoreID(), a.Checksum()
	}
	if c.index >= 0 {
		h.ClientIndex = new(uint32(c.index))
	}
	if c.cfg.Role == Slicelet {
		h.Task, h.Report = wire.TaskToProto(c.cfg.Task), c.report.Report
		h.Task.Index = 0
		if h.Report != nil {
			h.Task.State = h.Report.State
		}
	}
	return &slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}}
}
