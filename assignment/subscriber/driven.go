package subscriber

import (
	"log/slog"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Driven is a subscriber's protocol without clock, goroutine and network: its
// driver says what happens and when, and carries out what it asks for. A
// Subscriber is the driver of one on real connections; a simulation drives many
// on a clock of its own. The same events give the same actions. It is not safe
// for concurrent use.
type Driven struct {
	cfg  Config
	core *core
	out  []Action
}

// Link numbers one attempt at a connection, never the same twice; 0 is none.
type Link = uint64

// Verb is what a driver is asked to do.
type Verb = verb

// The verbs.
const (
	Dial    = dial    // connect to Addr, as Link, or to whom Via is connected to; answer with Linked or Ended
	Send    = send    // Message, on Link
	Cut     = cut     // Link; nothing more may be said of it
	Publish = publish // the state has changed
	Note    = note    // Text is for the log
)

// Action is one thing to do, in the order given.
type Action struct {
	Do      Verb
	Link    Link
	Addr    string
	Via     Link // another link to Addr, which may be the name of several servers; 0 for none
	Message *slicerv1.WatchRequest
	Level   slog.Level
	Text    string
	Err     error
}

// NewDriven validates the config, of which CacheFile, Observe, Logger and
// DialOptions are the driver's business. held is what a cache file had, or nil.
func NewDriven(cfg Config, held *assignment.Assignment, mode assignment.Mode) (*Driven, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d := &Driven{cfg: cfg}
	var cached *cacheEntry
	if held != nil {
		cached = &cacheEntry{assignment: held, mode: mode}
	}
	d.core = newCore(&d.cfg, xxhash.Sum64String(cfg.ClientID), cached)
	return d, nil
}

// Share has what frames decode to shared with others who are given the same memo.
// It is called before Start.
func (d *Driven) Share(m *wire.Memo) { d.core.memo = m }

// Start begins. It is called once, before anything else.
func (d *Driven) Start(now time.Time) { d.core.start(now) }

// Linked says that a connection that was asked for stands.
func (d *Driven) Linked(now time.Time, l Link) { d.core.linked(linkID(l), now) }

// Ended says that a connection is gone, or never came about.
func (d *Driven) Ended(now time.Time, l Link, err error) { d.core.ended(linkID(l), err, now) }

// Received says what a server has sent.
func (d *Driven) Received(now time.Time, l Link, m *slicerv1.WatchResponse) {
	d.core.received(linkID(l), m, now)
}

// Report hands over a slicelet's newest report. It is not changed, nor may it be.
func (d *Driven) Report(now time.Time, r *slicerv1.Report) { d.core.newReport(stamped{r, now}) }

// Tick lets time pass: it is due at Wake, and does no harm before.
func (d *Driven) Tick(now time.Time) { d.core.tick(now) }

// Wake is when Tick is due next; zero if never.
func (d *Driven) Wake() time.Time { return d.core.wake() }

// State is what is known.
func (d *Driven) State() State { return d.core.state() }

// Actions returns what is to be done, and forgets it. The slice is the caller's
// until the next call.
func (d *Driven) Actions() []Action {
	d.out = d.out[:0]
	for _, a := range d.core.take() {
		d.out = append(d.out, Action{a.do, Link(a.link), a.addr, Link(a.via), a.msg, a.level, a.text, a.err})
	}
	return d.out
}
