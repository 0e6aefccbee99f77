package fanout

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Slicelets of a large job are sent parts (see assignment.Cut). One pass over a generation sorts
// its slices by task, once for all; then each slicelet costs what is in its part, of this
// generation and of the one that it holds. A part is small, so it needs no turn among wholes,
// and is encoded for its subscriber alone.

// sentPart is the part that a subscriber was sent last, by what it was cut from.
type sentPart struct {
	of  Version
	sum uint64
}

// takesPart reports whether a subscriber is sent its part of the newest assignment. One that
// holds a part goes on with parts until the job has become much smaller.
func (d *downward) takesPart(s *subscriber) bool {
	least := assignment.PartFrom
	if s.part != (sentPart{}) {
		least /= 2
	}
	return s.in.Parts && d.cache.newest().NumSlices() >= least
}

// sumFor is the checksum of what the subscriber holds that has the newest assignment, as it is
// sent; another than what it says that it holds where that is a part which has not been cut yet.
func (d *downward) sumFor(s *subscriber) uint64 {
	newest := d.cache.newest()
	switch {
	case !d.takesPart(s):
		return newest.Checksum()
	case s.part.of != versionOf(newest):
		return ^s.progress.sum
	}
	return s.part.sum
}

// holdsPart reports whether what the subscriber says that it holds is the part of an assignment.
func (s *subscriber) holdsPart(it *item) bool {
	if !s.in.Parts || it.parts().Part(s.in.Task.GetName()).Checksum() != s.progress.sum {
		return false
	}
	s.part = sentPart{versionOf(it.a), s.progress.sum}
	return true
}

// cutPart asks for the part of the newest assignment, and for the one that is held if that may
// be known here.
func (d *downward) cutPart(now time.Time, s *subscriber, next step, target Session) {
	held, version := s.progress.held, versionOf(d.cache.newest())
	c := CutPart{id: s.id, task: s.in.Task.GetName(), of: d.cache.item(version.Gen).parts()}
	if held.Store == version.Store && held.Gen < version.Gen {
		base := d.cache.item(held.Gen)
		// Its number alone says which it is: the checksum is that of a part.
		if base == nil && next == stepDelta && d.awaitBase(now, s, anySum, target) {
			d.rest(s)
			return
		}
		if base != nil {
			c.from = base.parts()
		}
	}
	d.do(c)
}

// Cut cuts what is asked for. It takes time by what is in the parts, and for the first of a
// generation by all slices.
func (c CutPart) Cut() PartCut {
	e := PartCut{id: c.id}
	e.part, e.held = c.of.Since(c.from, c.task)
	for _, a := range []*assignment.Assignment{e.part, e.held} {
		if a != nil {
			a.Checksum() // which takes time, but once
		}
	}
	return e
}

// sendPart sends a part that has been cut, unless it is not what the subscriber lacks any more:
// as a delta if that is the step and the part held is the one that was cut.
func (d *downward) sendPart(now time.Time, e PartCut, target Session) {
	s, newest := d.subs.get(e.id), d.cache.newest()
	if s == nil || newest == nil || !d.takesPart(s) || versionOf(e.part) != versionOf(newest) {
		d.send(now, e.id, target)
		return
	}
	s.part = sentPart{versionOf(newest), e.part.Checksum()}
	next, on := d.next(s), e.held
	if next != stepDelta && next != stepWhole {
		d.send(now, e.id, target)
		return
	}
	if on != nil && (next != stepDelta || versionOf(on) != s.progress.held || on.Checksum() != s.progress.sum) {
		on = nil
	}
	d.cfg.Limiter.Release(now, s.id)
	s.progress.sent(s.part.of, s.part.sum, on == nil)
	d.depart(now, s, d.cfg.Encode(on, e.part, false), KindPart)
}
