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
// sent; it does not matter if it does not say that it holds it.
func (d *downward) sumFor(s *subscriber) uint64 {
	newest := d.cache.newest()
	version := versionOf(newest)
	switch {
	case !d.takesPart(s):
		return newest.Checksum()
	case s.progress.held != version:
		return 0
	case s.part.of != version:
		s.part = sentPart{version, d.cache.item(version.Gen).parts().Part(s.in.Task.GetName()).Checksum()}
	}
	return s.part.sum
}

// holdsPart reports whether what the subscriber says that it holds is the part of an assignment.
func (s *subscriber) holdsPart(it *item) bool {
	return s.in.Parts && it.parts().Part(s.in.Task.GetName()).Checksum() == s.progress.sum
}

// sendPart sends the part of the newest assignment, as a delta if that is the step and the part
// held is known, and what else listeners are to be told if the generation held is.
func (d *downward) sendPart(now time.Time, s *subscriber, next step, target Session) {
	task, held, version := s.in.Task.GetName(), s.progress.held, versionOf(d.cache.newest())
	it, base := d.cache.item(version.Gen), (*item)(nil)
	if held.Store == version.Store && held.Gen < version.Gen {
		base = d.cache.item(held.Gen)
		// Its number alone says which it is: the checksum is that of a part.
		if base == nil && next == stepDelta && d.awaitBase(now, s, anySum, target) {
			d.rest(s)
			return
		}
	}
	var from *assignment.Cut
	if base != nil {
		from = base.parts()
	}
	part, on := it.parts().Since(from, task)
	if on != nil && (next != stepDelta || on.Checksum() != s.progress.sum) {
		on = nil
	}
	d.cfg.Limiter.Release(now, s.id)
	s.part = sentPart{version, part.Checksum()}
	s.progress.sent(version, s.part.sum, on == nil)
	d.depart(now, s, d.cfg.Encode(on, part, false), KindPart)
}
