package fanout

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Subscribers stay where they are. So when Distributors have been restarted one after
// another the last has next to none, and after a partition one may have all. The
// assigner hears how many each has and tells how many that is on the average; who has
// far more lets some go, a few at a time, down to a little more than that: never below,
// so that those who come are not sent on. They connect to the next Distributor that they
// know, which costs a connection and what they lack: they hold their assignment.
const (
	// Far more is a quarter more, and at least leastMore; enough is an eighth more.
	farMore, enoughMore, leastMore = 4, 8, 8
	// RebalanceAfter is for how long it has to be far more, and for how long a subscriber
	// has to have been here: who has just come may be about to go on.
	RebalanceAfter = 10 * time.Second
	// rebalanceEvery is the mean time between those who are let go, one in a hundred at a
	// time.
	rebalanceEvery = time.Second
	// If half of them have come back they know nowhere else, and it is no use for a
	// while, each time twice as long. If there is nobody who can go, for the least.
	RestMin = time.Minute
	restMax = time.Hour
)

// Rebalancer says how many subscribers of a job are let go.
type Rebalancer struct {
	rng                *rand.Rand
	Distributors, Mean int       // as the assigner says, 0 while it does not know
	lookAt             time.Time // zero while there are not far more
	Moving             bool
	from, moved        int // how many there were when it began, and were moved since
	Rest               time.Duration
	RestUntil          time.Time
}

func NewRebalancer(distributor, job string) Rebalancer {
	h := fnv.New64a()
	h.Write([]byte(distributor + "/" + job))
	return Rebalancer{rng: rand.New(rand.NewPCG(h.Sum64(), 0))}
}

// Look says how many of those who are here are to be let go now, and when to look
// again, zero if not before something changes. busy puts it off.
func (s *Rebalancer) Look(now time.Time, here int, busy bool) (n int, next time.Time) {
	enough := s.Mean + s.Mean/enoughMore + 1
	most := enough
	if !s.Moving {
		most = s.Mean + max(s.Mean/farMore, leastMore) - 1
	}
	switch {
	case s.Distributors < 2:
		s.lookAt, s.Moving = time.Time{}, false
	case here <= most:
		if s.Moving {
			s.Rest = 0
		}
		s.lookAt, s.Moving = time.Time{}, false
	case s.RestUntil.After(now):
		return 0, s.RestUntil
	case s.lookAt.IsZero():
		s.lookAt = now.Add(RebalanceAfter)
	case s.lookAt.After(now):
	case busy:
		s.lookAt = now.Add(rebalanceEvery)
	case s.Moving && s.moved >= leastMore && s.from-here < s.moved/2:
		return 0, s.pause(now)
	default:
		if !s.Moving {
			s.Moving, s.from, s.moved = true, here, 0
		}
		s.lookAt = now.Add(rebalanceEvery/2 + time.Duration(s.rng.Int64N(int64(rebalanceEvery))))
		n = min(here-enough, max(here/100, 1))
		s.moved += n
	}
	return n, s.lookAt
}

// Found takes that only some of the n that look returned, or none, can be moved, and
// returns when to look again.
func (s *Rebalancer) Found(now, next time.Time, here, n, some int) time.Time {
	if s.moved -= n - some; some > 0 {
		return next
	}
	if 2*(s.from-here) >= s.moved { // those that were moved before, if any, have not come back
		s.Rest = 0
	}
	return s.pause(now)
}

// pause begins a rest, and returns its end.
func (s *Rebalancer) pause(now time.Time) time.Time {
	s.Rest = min(max(2*s.Rest, RestMin), restMax)
	s.RestUntil = now.Add(s.Rest)
	s.lookAt, s.Moving = time.Time{}, false
	return s.RestUntil
}
