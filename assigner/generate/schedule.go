package generate

import "time"

// schedule is when the next round is held, and why.
type schedule struct {
	planned   uint64 // version of the table that the last round has seen
	changed   bool   // the table has changed since
	changedAt time.Duration
	urgent    bool // slices are to be taken over at once
	flaps     flaps
	holdUntil time.Duration // no round before that
	runningAt time.Duration // when the first task was there for a first assignment
	running   bool
	hurry     Reason        // a round is due at once, for this reason
	roundAt   time.Duration // when the next balancing round is due
	hurried   int           // how many in a row were due before their time
	roundLast time.Duration // when loads were last taken in
	decided   time.Duration // when a round was last carried out
	warming   bool          // that has given new tasks only a part of their share
	nextRound time.Duration // no round before that, for the sake of roundGap
	early     string        // which task carries more than was foretold, "" if none
	earlyFrom time.Duration // no early round before that
	earlyGap  time.Duration // between the last round and that
}

// round is the next one and when it is due.
func (s *schedule) round(first bool, warmUp time.Duration) (why Reason, due time.Duration, ok bool) {
	gap := s.nextRound
	if first {
		if !s.running {
			return "", 0, false
		}
		return ReasonFirst, max(s.runningAt+firstSettle, gap), true
	}
	why, due = ReasonLoad, max(s.roundAt, gap)
	if s.changed {
		at := s.changedAt + joinSettle
		if s.urgent {
			at = s.changedAt
		}
		if at = max(at, gap); at < due {
			why, due = ReasonMembership, at
		}
	}
	if at, ok := s.flaps.due(); ok {
		if at = max(at, gap); at < due {
			why, due = ReasonMembership, at
		}
	}
	if at := max(s.decided+warmUp/warmSteps, gap); s.warming && at < due {
		why, due = ReasonWarming, at
	}
	if at := max(s.earlyFrom, gap); s.early != "" && at < due {
		why, due = ReasonEarly, at
	}
	if s.hurry != "" { // which goes before all else that is due, so that it keeps its name
		why, due = s.hurry, gap
		if why == ReasonOrder && s.changed && s.urgent {
			why = ReasonMembership // which does what was ordered, too
		}
	}
	return why, max(due, s.holdUntil), true
}

// begin starts anew when this assigner has become preferred.
func (s *schedule) begin(now, interval time.Duration, version uint64) {
	s.hurry, s.planned, s.running, s.changed = ReasonTakeover, version, false, false
	s.roundAt, s.roundLast, s.holdUntil = now+interval, now, 0
	s.calm(now, interval, false)
}

// putOff notes that a round is left out.
func (s *schedule) putOff(now, interval time.Duration, why Reason) {
	if why.forLoad() {
		s.roundAt, s.early = now+interval, ""
	} else {
		s.holdUntil = now + holdFor
	}
}

// calm notes that a round has answered the newest loads. From one early round to the next
// the time doubles, up to the interval, until one is held for another reason: what comes
// and goes faster than that cannot be answered.
func (s *schedule) calm(now, interval time.Duration, early bool) {
	gap := time.Duration(0)
	if early {
		gap = min(2*s.earlyGap, interval)
	}
	s.earlyGap = max(gap, earlyLeast)
	s.early, s.earlyFrom = "", now+s.earlyGap
}

// next makes the next balancing round due, after one that has answered the newest loads.
// Where that found them uneven they have changed just now, and it had little to go by: the
// next is held sooner, but not always, as uneven is what some loads are in every round.
func (s *schedule) next(now, interval time.Duration, uneven bool) {
	s.roundLast, s.roundAt = now, now+interval
	switch {
	case !uneven:
		s.hurried = 0
	case s.hurried < mostHurried:
		s.hurried++
		s.roundAt = now + interval*2/5
	}
}

// noteRunning keeps since when a task is there to own a first assignment.
func (s *schedule) noteRunning(now time.Duration, running bool) {
	if running && !s.running {
		s.runningAt = now
	}
	s.running = running
}

// noteChanged calls for a round if the table has changed since the last one: for one to
// be held soon, unless only names that come and go again and again have had a part in it.
func (s *schedule) noteChanged(now time.Duration, version uint64, calm bool) {
	switch {
	case version == s.planned || s.changed:
	case !calm && s.flaps.lately(now):
		s.flaps.pending = true
	default:
		s.changed, s.changedAt = true, now
	}
}

// again calls once more for a round that came to nothing.
func (s *schedule) again(now time.Duration, d *Planned) {
	if d.Why == ReasonMembership {
		s.changed, s.changedAt, s.urgent = true, now-joinSettle, true
	}
}
