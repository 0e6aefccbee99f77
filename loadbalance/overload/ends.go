package overload

import (
	"cmp"
	"math"
	"time"
)

const (
	// While fewer handlers are under way, for idleFor, than this part of what were while all
	// ended in time, there is room: a flood is over, of which clients will tell for a second or
	// two, as trial requests stand for what was held back before. What can end is taken to grow
	// by the factor idleGrows in a second then.
	idleFor   = 200 * time.Millisecond
	idlePart  = .25
	idleGrows = 50
	// missedFor is for how long it counts that many have missed their deadline when none does any
	// more: where little is asked for since, those would be many for a quarter of a minute, and what
	// ends would be taken for all that can.
	missedFor = 2 * endsOver
	// Where those that end, of late, took no more than quickly times what they need, for quickFor, next to
	// nothing waits: they may be quicker than they were. What can end is taken to grow by the factor
	// quickGrows in a second then, to quickMost of what ends: with 2 of it so much is let in that many miss
	// their deadline (TestHandlersGetMoreRoom), with 1.2 it takes twice as long until all room is used.
	quickly, quickGrows, quickMost = 1.5, 10, 1.5
	quickFor                       = 500 * time.Millisecond
	// surelyFor is for how long all that is asked for must have fitted before handlers are taken not
	// to be full any more, and less than trialShare must have been refused before what can end is
	// taken to grow. Where little more is asked for than can end either is so for a moment by chance:
	// of 1.2 times that a tenth of what can be done was lost, as the level swung (TestHandlersKeepTheirLevel).
	surelyFor = endsOver
	// stoodStill is how long the time between two ticks is at the least if the process stood still:
	// while it runs it reports each second. What ends too late then has waited for nothing that is full.
	stoodStill = 2 * time.Second
	// muchLonger is how much longer than they need handlers must be under way where the CPU is full.
	muchLonger = 2
	// takesOver is the time within which ends.takes grows by the factor e, unless handlers take less:
	// they may come to take longer.
	takesOver = time.Minute
)

// ends are of handlers, decayed.
type ends struct {
	served, gaveUp, missed, seconds float64
	ended, kept, shed, lasted       float64       // of just now; kept: ended, and did not give up; lasted: s under way of those that ended
	sound                           time.Duration // since one was missed
	full                            bool          // many were missed, and as much is asked for still
	fits, spare, quick              time.Duration // for how long all that is asked for fits, next to nothing is shed, and those that end are quick
	// underWay is how many were while none ended too late, decayed, and idle for how long far
	// fewer are.
	underWay float64
	idle     time.Duration
	// worked is for how many seconds those that ended were under way, decayed. takes is the least that one
	// took of it, as a mean, while none ended too late: what it takes if it waits for nothing; 0
	// is not known. waited is for how many seconds requests waited to be started, decayed.
	worked, takes, waited float64
	// can is how many handlers can end in a second, while they are full. What does end will
	// not do: it falls with what clients hold back.
	can float64
}

// tick takes what has ended, and says in l what follows if many were missed.
func (e *ends) tick(s Seen, over time.Duration, k float64, l *Limits) {
	if over >= stoodStill {
		over, k, s = 0, 1, Seen{UnderWay: s.UnderWay}
	}
	e.seconds = e.seconds*k + over.Seconds()
	e.served = e.served*k + float64(max(s.Ended, 0))
	e.worked = e.worked*k + max(s.Worked, 0).Seconds()
	e.waited = e.waited*k + float64(max(s.Waiting, 0))*over.Seconds()
	e.missed = e.missed*k + float64(max(s.Missed+s.Refused, 0))
	if e.sound += over; s.Missed+s.Refused > 0 {
		e.sound = 0
	} else if e.sound >= missedFor {
		e.missed = 0
	}
	// Of a process that has begun with a flood the first counts, or all had waited.
	if (e.sound >= endsOver || e.missed == 0) && !e.full && e.served >= leastStarts {
		e.takes = min(cmp.Or(e.takes*math.Exp(over.Seconds()/takesOver.Seconds()), math.Inf(1)), e.worked/e.served)
	}
	e.gaveUp = e.gaveUp*k + float64(max(s.GaveUp, 0))
	lately := math.Exp(-over.Seconds() / askedOver.Seconds())
	e.shed, e.ended = e.shed*lately+float64(max(s.Shed, 0)), e.ended*lately+float64(max(s.Ended, 0))
	e.kept = e.kept*lately + float64(max(s.Ended-s.GaveUp, 0))
	e.lasted = e.lasted*lately + max(s.Worked, 0).Seconds()
	if e.quick += over; e.lasted > quickly*e.takes*e.ended || e.ended < .5 {
		e.quick = 0
	}
	if e.spare += over; e.shed >= trialShare*e.ended {
		e.spare = 0
	}
	e.rest(s, over, k)
	if e.served < 1 {
		e.full = false
		return
	}
	// Where requests wait to be started it is the CPU that is full, of which Spacing says what it
	// can do whatever is refused; what ends follows what is refused down. If handlers are under way
	// for far longer than that, and than they would be if they waited for nothing, something else is
	// full as well.
	cpu := l.Asked*l.Spacing.Seconds() > 1
	long := e.worked > muchLonger*(e.takes*e.served+e.waited)
	// What ends just now, less what may be chance, counts where it is more: a task that had little
	// to do before ended little.
	rate := max(max(e.served-e.gaveUp, leastEnds*e.served)/e.seconds, (e.kept-math.Sqrt(e.kept))/askedOver.Seconds())
	switch {
	case e.missed >= max(manyMissed*e.served, 1): // one alone is not many, long after it least of all
		e.full, e.can = long || !cpu, rate
	case !e.full:
	case e.idle >= idleFor && !s.HeavyKeys: // else clients hold back nothing, and few are under way by chance
		e.can *= math.Pow(idleGrows, over.Seconds())
	case e.quick >= quickFor:
		e.can = max(e.can, min(e.can*math.Pow(quickGrows, over.Seconds()), quickMost*rate))
	case e.shed > 2*trialShare*e.ended && l.Asked > e.can:
		e.can = max(e.can*math.Exp(-over.Seconds()), rate)
	case e.spare >= surelyFor: // next to all that clients send is served, trial requests too
		e.can *= math.Exp(over.Seconds())
	}
	if e.fits += over; l.Asked >= e.can {
		e.fits = 0
	}
	if e.full = e.full && e.fits < surelyFor; e.full {
		l.Each, l.can, l.least = time.Duration(float64(time.Second)/rate), e.can, leastTakes*e.takes*float64(time.Second)
	}
}

// rest takes how many are under way.
func (e *ends) rest(s Seen, over time.Duration, k float64) {
	n := float64(max(s.UnderWay, 0))
	switch {
	case n < idlePart*e.underWay:
		e.idle += over
		return
	case s.Missed+s.Refused == 0:
		e.underWay = e.underWay*k + n*(1-k)
	}
	e.idle = 0
}
