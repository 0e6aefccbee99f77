package fanout

import (
	"github.com/slicer-project/slicer/assignment"
)

// Progress is one subscriber's place in its job's assignments: what it holds and
// what is on its way to it. At most one assignment is on its way at a time, so
// that a slow subscriber costs one and whatever is newest comes next.
type Progress struct {
	Held Version
	Sum  uint64 // checksum of what is held, 0 when not known: then no delta is sent
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

// InFlight reports whether an acknowledgement is waited for.
func (p *Progress) InFlight() bool { return p.flight.Gen != 0 }

// Stuck says that the subscriber will not take the newest.
func (p *Progress) Stuck(newest Version) bool {
	return p.refused == newest && p.refusals >= MaxRefusals && p.Held != newest
}

// Step is what to do for a subscriber.
type Step uint8

const (
	stepNothing Step = iota
	StepWhole        // send the newest, whole
	StepDelta        // send the newest, as a delta on what is held
	stepBehind       // the subscriber holds something newer: fetch that first
)

// Next says what to do to bring the subscriber to the newest assignment. A number is
// followed by a lower one only of another store, and only if that is the job's home as
// the assigners say: otherwise what is held here may be of the past.
func (p *Progress) Next(newest Version, sum, home uint64) Step {
	switch {
	case p.Held.Gen > newest.Gen && (newest.Gen == 0 || p.Held.Store == newest.Store || home != newest.Store):
		return stepBehind
	case newest.Gen == 0 || p.flight.Gen != 0:
		return stepNothing
	case p.Held == newest && p.Sum == sum, p.refused == newest && p.refusals >= MaxRefusals:
		return stepNothing
	case p.Held.Gen != 0 && p.Held.Gen < newest.Gen && p.Held.Store == newest.Store && p.Sum != 0:
		return StepDelta
	}
	return StepWhole
}

// Sent notes what is on its way.
func (p *Progress) Sent(newest Version, sum uint64, whole bool) {
	p.flight, p.flightSum, p.flightWhole = newest, sum, whole
}

// Acked takes an acknowledgement of what was sent. One of anything else is
// believed if it is of something newer than what is held, and ignored otherwise.
func (p *Progress) Acked(gen assignment.Generation) {
	switch {
	case p.flight.Gen == gen:
		p.Held, p.Sum, p.flight = p.flight, p.flightSum, Version{}
	case gen > p.Held.Gen && gen > p.flight.Gen:
		p.Held.Gen, p.Sum, p.flight = gen, 0, Version{}
	}
}

// Declined takes a refusal. The whole is sent next, a few times if need be.
func (p *Progress) Declined() {
	if p.flight.Gen == 0 {
		return
	}
	if p.flightWhole {
		if p.refused != p.flight {
			p.refused, p.refusals = p.flight, 0
		}
		p.refusals++
	}
	p.Sum, p.flight = 0, Version{}
}
