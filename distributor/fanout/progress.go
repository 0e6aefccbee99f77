package fanout

import (
	"github.com/slicer-project/slicer/assignment"
)

// progress is one subscriber's place in its job's assignments: what it holds and
// what is on its way to it. At most one assignment is on its way at a time, so
// that a slow subscriber costs one and whatever is newest comes next.
type progress struct {
	held Version
	sum  uint64 // checksum of what is held, 0 when not known: then no delta is sent
	// flight is what was sent and not acknowledged yet, if its gen is not 0.
	flight      Version
	flightSum   uint64
	flightWhole bool
	// refused is an assignment that the subscriber would not take even whole, and
	// refusals how often: after maxRefusals it is not sent again.
	refused  Version
	refusals int
}

// MaxRefusals gives a subscriber the chance to see that it is no use and to go
// elsewhere.
const MaxRefusals = 3

// inFlight reports whether an acknowledgement is waited for.
func (p *progress) inFlight() bool { return p.flight.Gen != 0 }

// stuck says that the subscriber will not take the newest.
func (p *progress) stuck(newest Version) bool {
	return p.refused == newest && p.refusals >= MaxRefusals && p.held != newest
}

// step is what to do for a subscriber.
type step uint8

const (
	stepNothing step = iota
	stepWhole        // send the newest, whole
	stepDelta        // send the newest, as a delta on what is held
	stepBehind       // the subscriber holds something newer: fetch that first
)

// next says what to do to bring the subscriber to the newest assignment. A number is
// followed by a lower one only of another store, and only if that is the job's home as
// the assigners say: otherwise what is held here may be of the past.
func (p *progress) next(newest Version, sum, home uint64) step {
	switch {
	case p.held.Gen > newest.Gen && (newest.Gen == 0 || p.held.Store == newest.Store || home != newest.Store):
		return stepBehind
	case newest.Gen == 0 || p.flight.Gen != 0:
		return stepNothing
	case p.held == newest && p.sum == sum, p.refused == newest && p.refusals >= MaxRefusals:
		return stepNothing
	case p.held.Gen != 0 && p.held.Gen < newest.Gen && p.held.Store == newest.Store && p.sum != 0:
		return stepDelta
	}
	return stepWhole
}

// sent notes what is on its way.
func (p *progress) sent(newest Version, sum uint64, whole bool) {
	p.flight, p.flightSum, p.flightWhole = newest, sum, whole
}

// acked takes an acknowledgement of what was sent. One of anything else is
// believed if it is of something newer than what is held, and ignored otherwise.
func (p *progress) acked(gen assignment.Generation) {
	switch {
	case p.flight.Gen == gen:
		p.held, p.sum, p.flight = p.flight, p.flightSum, Version{}
	case gen > p.held.Gen && gen > p.flight.Gen:
		p.held.Gen, p.sum, p.flight = gen, 0, Version{}
	}
}

// declined takes a refusal. The whole is sent next, a few times if need be.
func (p *progress) declined() {
	if p.flight.Gen == 0 {
		return
	}
	if p.flightWhole {
		if p.refused != p.flight {
			p.refused, p.refusals = p.flight, 0
		}
		p.refusals++
	}
	p.sum, p.flight = 0, Version{}
}
