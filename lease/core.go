package lease

import (
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Holding is what a reader may believe in: the zero value, nothing.
type Holding struct {
	// Guard is the generation whose assignment is believed in as a whole.
	Guard assignment.Generation
	// From and To, if Guard is 0, are the generations in both of which a key must
	// be the reader's own.
	From, To assignment.Generation
}

// ActionKind says what a Core asks its driver to do.
type ActionKind uint8

// The actions.
const (
	Believe      ActionKind = iota + 1 // from now on, in Action.Holding
	AcquireClaim                       // answer with Acquired, Refused or Unknown
	ReleaseClaim                       // answer with Released or Unknown
	Fetch                              // answer with InHand or NotInHand
)

// Action is one thing to do, in the order given: belief ends before the release
// that it makes room for is sent.
type Action struct {
	Kind       ActionKind
	Holding    Holding
	Claim      Claim
	Generation assignment.Generation
}

// EventKind says what has happened to a Core.
type EventKind uint8

// The events.
const (
	Opened    EventKind = iota + 1 // a session has begun: Event.Session
	Gone                           // the session's lease is lost
	Looked                         // Event.Seen, from the watch or a read
	Acquired                       // Event.Claim is held
	Refused                        // Event.Claim is not granted; Event.Seen says why, or to try again after Event.Retry
	Released                       // Event.Claim is not held any more
	Unknown                        // acquire or release of Event.Claim failed in between: try again after Event.Retry
	InHand                         // the assignment of Event.Generation has arrived
	NotInHand                      // it could not be had: try again after Event.Retry
	Tick                           // time has passed
	Leave                          // the job is left: nothing is wanted any more, and all is let go of
)

// Event is something that happened. Answers carry the session that they answer to.
type Event struct {
	Kind       EventKind
	Session    uint64
	Seen       Seen
	Claim      Claim
	Release    bool // with Unknown: it was a release
	Generation assignment.Generation
	Retry      time.Duration
	Most       time.Duration // with Opened: the longest patience in this session, 0 for no bound
}

// hold is one holder key: what it is or may be set to.
type hold struct {
	claim   Claim // held, or perhaps held
	known   bool  // held for certain
	asked   bool  // an acquire is under way
	retry   time.Duration
	since   time.Duration // when its record was first seen not to grant it any more
	gone    bool
	loose   bool  // an acquire or a release of unknown outcome may yet be carried out
	drop    Claim // let go of here, and perhaps held in the store
	dropped bool  // its release is under way
	last    bool  // nothing can set the key again once that is answered
	rests   bool  // a release was answered that was not the last
	redrop  time.Duration
}

// Core is a reader's side of one job: what it believes and does about what it
// sees. It is pure: events and the time come in, actions go out. Not safe for
// concurrent use.
type Core struct {
	// Patience is how long a recalled record is kept for want of the other one.
	patience time.Duration
	most     time.Duration // of patience, in this session; 0 for no bound
	leaving  bool

	session       uint64
	seen          Seen
	looked        bool
	guard, bridge hold
	holding       Holding
	hands         []hand
	wake          time.Duration
	waking        bool
}

// hand is an assignment that the reader has, or tries to get.
type hand struct {
	generation assignment.Generation
	have       bool
	fetching   bool
	retry      time.Duration
}

// NewCore makes the core of a reader without a session. patience bounds how long
// it holds up a change for an assignment or a bridge that cannot be had.
func NewCore(patience time.Duration) *Core { return &Core{patience: patience} }

// Holding is what it believes in, as long as the session's deadline has not passed.
func (c *Core) Holding() Holding { return c.holding }

// Claims returns what is held or may come to be held.
func (c *Core) Claims() (claims []Claim) {
	for _, claim := range []Claim{c.guard.claim, c.guard.drop, c.bridge.claim, c.bridge.drop} {
		if claim != (Claim{}) {
			claims = append(claims, claim)
		}
	}
	return claims
}

// Left reports whether a job that was left is done with: in this session nothing is
// held, nothing can come to be held, and no release can come that would take what is
// acquired anew.
func (c *Core) Left() bool { return c.leaving && len(c.Claims()) == 0 }

// Resting reports whether nothing of a job that was left is held, though an acquire
// or a release of unknown outcome may yet be carried out.
func (c *Core) Resting() bool {
	return c.leaving && c.guard.resting() && c.bridge.resting()
}

func (h *hold) resting() bool { return h.claim == Claim{} && (h.drop == Claim{} || h.rests) }

// Wake is when to send a Tick at the latest, if it waits for time to pass.
func (c *Core) Wake() (at time.Duration, ok bool) { return c.wake, c.waking }

// Named returns the generations whose assignments it has or needs.
func (c *Core) Named() []assignment.Generation {
	gens := make([]assignment.Generation, len(c.hands))
	for i, h := range c.hands {
		gens[i] = h.generation
	}
	return gens
}

// Step takes an event. valid reports whether the session's deadline lies ahead: if
// not, nothing is sent, until an event finds it valid again.
func (c *Core) Step(now time.Duration, valid bool, e Event) []Action {
	if !c.take(now, e) {
		return nil
	}
	return c.react(now, valid)
}

// take notes what has happened; false if it is none of this session's business.
func (c *Core) take(now time.Duration, e Event) bool {
	switch e.Kind {
	case Opened:
		*c = Core{patience: c.patience, leaving: c.leaving, session: e.Session, most: e.Most, hands: c.hands, holding: c.holding}
		return true
	case Leave:
		c.leaving, c.hands = true, nil
		return true
	case InHand, NotInHand:
		if h := c.hand(e.Generation); h != nil {
			h.have, h.fetching, h.retry = e.Kind == InHand, false, now+e.Retry
		}
		return true
	case Tick:
		return true
	}
	if e.Session != c.session || c.session == 0 {
		return false // an answer to an old session is not one to this
	}
	h := &c.guard
	if e.Claim.Bridge() {
		h = &c.bridge
	}
	switch e.Kind {
	case Gone:
		*c = Core{patience: c.patience, leaving: c.leaving, hands: c.hands, holding: c.holding}
	case Looked:
		c.look(e.Seen)
	case Acquired:
		if h.claim == e.Claim {
			h.known, h.asked = true, false
		}
	case Refused:
		// An earlier attempt of unknown outcome may have set the key: the claim
		// stays noted, and is released for what is seen now.
		if h.claim == e.Claim {
			h.asked, h.retry = false, now+e.Retry
		}
		c.look(e.Seen)
	case Released:
		switch {
		case h.drop != e.Claim:
		case h.last:
			h.drop, h.dropped = Claim{}, false
		default:
			h.dropped, h.rests = false, true
		}
	case Unknown:
		switch {
		case e.Release && h.drop == e.Claim:
			h.dropped, h.loose, h.redrop = false, true, now+e.Retry
		case !e.Release && h.claim == e.Claim:
			h.asked, h.loose, h.retry = false, true, now+e.Retry
		}
	}
	return true
}

// look takes newer records; older ones arrive when an answer overtakes the watch.
func (c *Core) look(s Seen) {
	if !c.looked || s.Revision >= c.seen.Revision {
		c.seen, c.looked = s, true
	}
}

// react says what follows from what is seen and held: leases.md's rules for the
// slicelet, in their order.
func (c *Core) react(now time.Duration, valid bool) (do []Action) {
	c.waking = false
	if c.leaving {
		return c.leave(now, valid)
	}
	if c.session == 0 || !c.looked || !valid {
		return c.believe(nil)
	}
	g, b := &c.guard, &c.bridge
	before, after := c.seen.Guard, c.seen.Bridge
	var sends []Action

	do = c.fetch(now, do)

	// Make before break: the guard goes when the bridge is held or none is to be
	// had, the bridge when the guard is.
	if c.mark(g, now) {
		crossed := b.known && b.claim == after.Claim()
		none := !after.Open || after.From != g.claim.To
		if !g.known || crossed || none || c.late(g, now) {
			g.relinquish()
		}
	}
	if want := GuardClaim(before.Generation); before.Open && !g.known && c.has(before.Generation) {
		sends = c.acquire(g, want, now, sends)
	}
	if c.mark(b, now) {
		if !b.known || g.known || b.claim != after.Claim() || c.late(b, now) {
			b.relinquish()
		}
	}
	if after.Open && after.From == before.Generation && !b.known && c.has(after.From) && c.has(after.To) {
		sends = c.acquire(b, after.Claim(), now, sends)
	}
	do = c.believe(do)
	do = append(do, sends...)
	do = c.release(g, now, do)
	return c.release(b, now, do)
}

// leave lets go of all that is held or may be. What is asked for is waited for, lest
// the release overtakes it.
//
// An acquire of unknown outcome may be carried out after a release that was
// answered, as long as the record grants its claim. Hence that release is not the
// last one: the record is watched, and once it is seen not to grant the claim
// another one is sent. That is enough, since a record never grants again what it
// has ceased to grant (generations only grow): whatever of the acquire comes after
// the state that was seen is refused, and what came before, the release takes away.
// A release of unknown outcome is waited for in the same way, since it may take what
// is acquired anew for as long as that can be acquired.
func (c *Core) leave(now time.Duration, valid bool) (do []Action) {
	for _, h := range []*hold{&c.guard, &c.bridge} {
		if h.claim != (Claim{}) && !h.asked {
			h.relinquish()
		}
	}
	do = c.believe(nil)
	if c.session == 0 || !valid {
		return do
	}
	return c.release(&c.bridge, now, c.release(&c.guard, now, do))
}

// mark notes since when the record does not grant what is held.
func (c *Core) mark(h *hold, now time.Duration) bool {
	gone := h.claim != Claim{} && !c.seen.Grants(h.claim)
	if gone && !h.gone {
		h.since = now
	}
	h.gone = gone
	return gone
}

func (c *Core) late(h *hold, now time.Duration) bool {
	end := h.since + c.patience
	if c.most > 0 {
		end = min(end, h.since+c.most)
	}
	if now >= end {
		return true
	}
	c.alarm(end)
	return false
}

// relinquish ends a claim here, and asks for its release.
func (h *hold) relinquish() {
	*h = hold{drop: h.claim, loose: h.loose}
}

func (c *Core) acquire(h *hold, want Claim, now time.Duration, do []Action) []Action {
	if h.asked && h.claim == want {
		return do
	}
	if h.claim == want && now < h.retry {
		c.alarm(h.retry)
		return do
	}
	h.claim, h.asked, h.known, h.loose = want, true, false, h.loose && h.claim == want
	return append(do, Action{Kind: AcquireClaim, Claim: want})
}

func (c *Core) release(h *hold, now time.Duration, do []Action) []Action {
	if (h.drop == Claim{}) || h.dropped || h.rests && c.seen.Grants(h.drop) {
		return do
	}
	if now < h.redrop {
		c.alarm(h.redrop)
		return do
	}
	h.dropped, h.last = true, !h.loose || !c.seen.Grants(h.drop)
	return append(do, Action{Kind: ReleaseClaim, Claim: h.drop})
}

// believe says what it believes in now, if that is something else than before.
func (c *Core) believe(do []Action) []Action {
	var holding Holding
	switch {
	case c.guard.known:
		holding.Guard = c.guard.claim.To
	case c.bridge.known:
		holding.From, holding.To = c.bridge.claim.From, c.bridge.claim.To
	}
	if holding == c.holding {
		return do
	}
	c.holding = holding
	return append(do, Action{Kind: Believe, Holding: holding})
}

// fetch asks for the assignments that the records name, and forgets those that
// neither they nor a claim does.
func (c *Core) fetch(now time.Duration, do []Action) []Action {
	var need []assignment.Generation
	for _, g := range []assignment.Generation{c.seen.Guard.Generation, c.seen.Bridge.From, c.seen.Bridge.To,
		c.guard.claim.To, c.bridge.claim.From, c.bridge.claim.To} {
		if g != 0 && !slices.Contains(need, g) {
			need = append(need, g)
		}
	}
	c.hands = slices.DeleteFunc(c.hands, func(h hand) bool { return !slices.Contains(need, h.generation) })
	for _, g := range need {
		if c.hand(g) == nil {
			c.hands = append(c.hands, hand{generation: g})
		}
		switch h := c.hand(g); {
		case h.have || h.fetching:
		case now < h.retry:
			c.alarm(h.retry)
		default:
			h.fetching = true
			do = append(do, Action{Kind: Fetch, Generation: g})
		}
	}
	return do
}

func (c *Core) hand(g assignment.Generation) *hand {
	for i := range c.hands {
		if c.hands[i].generation == g {
			return &c.hands[i]
		}
	}
	return nil
}

func (c *Core) has(g assignment.Generation) bool {
	h := c.hand(g)
	return h != nil && h.have
}

func (c *Core) alarm(at time.Duration) {
	if !c.waking || at < c.wake {
		c.wake, c.waking = at, true
	}
}
