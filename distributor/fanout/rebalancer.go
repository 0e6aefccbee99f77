package fanout

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Subscribers stay where they are. So when Distributors have been restarted one after
// another the last has next to none, and after a partition one may have all. Each tells
// the assigner how many it has, and learns how many that is on the average. A Distributor
// that has far more moves some away, a few at a time, down to a little more than the
// average and never below, so that those that come are not moved on. They connect to the
// next Distributor that they know, which costs a connection and the deltas that they
// lack: they hold their assignment.
const (
	// Far more is a quarter more, and at least leastMore; enough is an eighth more.
	farMore, enoughMore, leastMore = 4, 8, 8
	// rebalanceAfter is for how long it has to be far more, and for how long a subscriber
	// has to have been here: one that has just come may be about to go on.
	rebalanceAfter = 10 * time.Second
	// rebalanceEvery is the mean time between two moves, of one subscriber in a hundred
	// each.
	rebalanceEvery = time.Second
	// When half of them have returned they know no other Distributor. Rebalancing then
	// rests, each time twice as long. When no subscriber can be moved it rests for the
	// least time.
	RestMin = time.Minute
	restMax = time.Hour
)

// rebalancer says how many subscribers of a job are let go.
type rebalancer struct {
	rng                *rand.Rand
	distributors, mean int       // as the assigner says, 0 while it does not know
	lookAt             time.Time // zero while there are not far more
	moving             bool
	from, moved        int // how many there were when it began, and were moved since
	rest               time.Duration
	restUntil          time.Time
}

func newRebalancer(distributor, job string) rebalancer {
	h := fnv.New64a()
	h.Write([]byte(distributor + "/" + job))
	return rebalancer{rng: rand.New(rand.NewPCG(h.Sum64(), 0))}
}

// look returns how many of the subscribers that are here are to be moved away now, and
// when to look again, zero if not before something changes. busy puts it off.
func (s *rebalancer) look(now time.Time, here int, busy bool) (n int, next time.Time) {
	enough := s.mean + s.mean/enoughMore + 1
	most := enough
	if !s.moving {
		most = s.mean + max(s.mean/farMore, leastMore) - 1
	}
	switch {
	case s.distributors < 2:
		s.lookAt, s.moving = time.Time{}, false
	case here <= most:
		if s.moving {
			s.rest = 0
		}
		s.lookAt, s.moving = time.Time{}, false
	case s.restUntil.After(now):
		return 0, s.restUntil
	case s.lookAt.IsZero():
		s.lookAt = now.Add(rebalanceAfter)
	case s.lookAt.After(now):
	case busy:
		s.lookAt = now.Add(rebalanceEvery)
	case s.moving && s.moved >= leastMore && s.from-here < s.moved/2:
		return 0, s.pause(now)
	default:
		if !s.moving {
			s.moving, s.from, s.moved = true, here, 0
		}
		s.lookAt = now.Add(rebalanceEvery/2 + time.Duration(s.rng.Int64N(int64(rebalanceEvery))))
		n = min(here-enough, max(here/100, 1))
		s.moved += n
	}
	return n, s.lookAt
}

// found takes that only some of the n that look returned, or none, can be moved, and
// returns when to look again.
func (s *rebalancer) found(now, next time.Time, here, n, some int) time.Time {
	if s.moved -= n - some; some > 0 {
		return next
	}
	if 2*(s.from-here) >= s.moved { // those that were moved before, if any, have not come back
		s.rest = 0
	}
	return s.pause(now)
}

// pause begins a rest, and returns its end.
func (s *rebalancer) pause(now time.Time) time.Time {
	s.rest = min(max(2*s.rest, RestMin), restMax)
	s.restUntil = now.Add(s.rest)
	s.lookAt, s.moving = time.Time{}, false
	return s.restUntil
}
