package distributor

import (
	"github.com/slicer-project/slicer/assignment"
)

// progress is one subscriber's place in its job's assignments: what it holds and
// what is on its way to it. At most one assignment is on its way at a time, so
// that a slow subscriber costs one and whatever is newest comes next. Pure.
type progress struct {
	held mark
	sum  uint64 // checksum of what is held, 0 when not known: then no delta is sent
	// flight is what was sent and not acknowledged yet, if its gen is not 0.
	flight      mark
	flightSum   uint64
	flightWhole bool
	// refused is an assignment that the subscriber would not take even whole, and
	// refusals how often: after maxRefusals it is not sent again.
	refused  mark
	refusals int
}

// maxRefusals gives a subscriber the chance to see that it is no use and to go
// elsewhere.
const maxRefusals = 3

// stuck says that the subscriber will not take the newest.
func (p *progress) stuck(newest mark) bool {
	return p.refused == newest && p.refusals >= maxRefusals && p.held != newest
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
func (p *progress) next(newest mark, sum, home uint64) step {
	switch {
	case p.held.gen > newest.gen && (newest.gen == 0 || p.held.store == newest.store || home != newest.store):
		return stepBehind
	case newest.gen == 0 || p.flight.gen != 0:
		return stepNothing
	case p.held == newest && p.sum == sum, p.refused == newest && p.refusals >= maxRefusals:
		return stepNothing
	case p.held.gen != 0 && p.held.gen < newest.gen && p.held.store == newest.store && p.sum != 0:
		return stepDelta
	}
	return stepWhole
}

// sent notes what is on its way.
func (p *progress) sent(newest mark, sum uint64, whole bool) {
	p.flight, p.flightSum, p.flightWhole = newest, sum, whole
}

// acked takes an acknowledgement of what was sent. One of anything else is
// believed if it is of something newer than what is held, and ignored otherwise.
func (p *progress) acked(gen assignment.Generation) {
	switch {
	case p.flight.gen == gen:
		p.held, p.sum, p.flight = p.flight, p.flightSum, mark{}
	case gen > p.held.gen && gen > p.flight.gen:
		p.held.gen, p.sum, p.flight = gen, 0, mark{}
	}
}

// declined takes a refusal. The whole is sent next, a few times if need be.
func (p *progress) declined() {
	if p.flight.gen == 0 {
		return
	}
	if p.flightWhole {
		if p.refused != p.flight {
			p.refused, p.refusals = p.flight, 0
		}
		p.refusals++
	}
	p.sum, p.flight = 0, mark{}
}
