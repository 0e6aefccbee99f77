package distributor

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
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
	// shareAfter is for how long it has to be far more, and for how long a subscriber
	// has to have been here: who has just come may be about to go on.
	shareAfter = 10 * time.Second
	// shareLook is the mean time between those who are let go, one in a hundred at a
	// time.
	shareLook = time.Second
	// If half of them have come back they know nowhere else, and it is no use for a
	// while, each time twice as long. If there is nobody who can go, for the least.
	shareRestMin = time.Minute
	shareRestMax = time.Hour
	// comeBackIn is when those are back who have nowhere else to go, about.
	comeBackIn = time.Second
)

// share says how many subscribers of a job are let go. Pure.
type share struct {
	rng                *rand.Rand
	distributors, mean int       // as the assigner says, 0 while it does not know
	lookAt             time.Time // zero while there are not far more
	letting            bool
	from, let          int // how many there were when it began, and were let go since
	rest               time.Duration
	restUntil          time.Time
}

func newShare(distributor, job string) share {
	h := fnv.New64a()
	h.Write([]byte(distributor + "/" + job))
	return share{rng: rand.New(rand.NewPCG(h.Sum64(), 0))}
}

// look says how many of those who are here are to be let go now, and when to look
// again, zero if not before something changes. busy puts it off.
func (s *share) look(now time.Time, here int, busy bool) (n int, next time.Time) {
	enough := s.mean + s.mean/enoughMore + 1
	most := enough
	if !s.letting {
		most = s.mean + max(s.mean/farMore, leastMore) - 1
	}
	switch {
	case s.distributors < 2:
		s.lookAt, s.letting = time.Time{}, false
	case here <= most:
		if s.letting {
			s.rest = 0
		}
		s.lookAt, s.letting = time.Time{}, false
	case s.restUntil.After(now):
		return 0, s.restUntil
	case s.lookAt.IsZero():
		s.lookAt = now.Add(shareAfter)
	case s.lookAt.After(now):
	case busy:
		s.lookAt = now.Add(shareLook)
	case s.letting && s.let >= leastMore && s.from-here < s.let/2:
		return 0, s.pause(now)
	default:
		if !s.letting {
			s.letting, s.from, s.let = true, here, 0
		}
		s.lookAt = now.Add(shareLook/2 + time.Duration(s.rng.Int64N(int64(shareLook))))
		n = min(here-enough, max(here/100, 1))
		s.let += n
	}
	return n, s.lookAt
}

// pause begins a rest, and returns its end.
func (s *share) pause(now time.Time) time.Time {
	s.rest = min(max(2*s.rest, shareRestMin), shareRestMax)
	s.restUntil = now.Add(s.rest)
	s.lookAt, s.letting = time.Time{}, false
	return s.restUntil
}

// letGo has some subscribers go elsewhere if there are far more of them here: those who
// have been here longest, so that nobody has to go again before all others have. They are
// clerks: a slicelet that came to a Distributor that the assigner does not hear could be
// taken for dead.
func (j *job) letGo(now time.Time) (next time.Time) {
	s := &j.share
	s.distributors, s.mean = 0, 0
	if j.known() && !j.d.second() { // the first tier does not know who is of the second
		s.distributors, s.mean = int(j.answer.status.GetDistributors()), int(j.answer.status.GetMeanSubscribers())
	}
	here := j.conv.roles[slicerv1.Role_ROLE_CLERK] + j.conv.roles[slicerv1.Role_ROLE_SLICELET]
	was, rested := s.letting, s.restUntil
	n, next := s.look(now, here, j.paced.After(now))
	if !s.restUntil.Equal(rested) {
		j.log.Info("subscribers that were let go have come back", "subscribers", here, "mean", s.mean, "not_again_for", s.rest)
	}
	if n == 0 {
		return next
	}
	var ids []uint64
	for id, sub := range j.subs {
		if sub.in.role == slicerv1.Role_ROLE_CLERK && now.Sub(sub.joined) >= shareAfter && sub.progress.flight.gen == 0 && !sub.sending {
			ids = append(ids, id)
		}
	}
	if s.let -= n - min(n, len(ids)); len(ids) == 0 {
		if 2*(s.from-here) >= s.let { // those who were let go before, if any, have not come back
			s.rest = 0
		}
		return s.pause(now)
	}
	if !was {
		j.log.Info("far more subscribers than others have, letting some go", "subscribers", here, "mean", s.mean, "distributors", s.distributors)
	}
	slices.Sort(ids)
	for _, id := range ids[:min(n, len(ids))] {
		j.subs[id].end(comeBack())
		j.d.metrics.sentAway.Inc()
	}
	return next
}

// comeBack sends a subscriber elsewhere, and back only if it knows nowhere else.
func comeBack() error {
	s := status.New(codes.Unavailable, "other distributors have fewer subscribers")
	if with, err := s.WithDetails(&slicerv1.ComeBack{AfterMs: comeBackIn.Milliseconds()}); err == nil {
		s = with
	}
	return s.Err()
}
