package fanout

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// SlowAfter is how long an acknowledgement may take before its subscriber is
	// called slow.
	SlowAfter = 5 * time.Second
	// SlowLook is how often they are counted, slowLog how often they are named.
	SlowLook = time.Second
	slowLog  = 30 * time.Second
	// retryAfter is when those that are moved away and know nowhere else are back, about.
	retryAfter = time.Second
)

// slowWatch is when to look for slow subscribers next, and which were slow.
type slowWatch struct {
	lookAt, namedAt time.Time
	worst           []Slow // at most wire.MaxStragglers, the slowest first
	total           int
}

// watchSlow counts and names those that have not acknowledged for long. It looks only
// while one is late.
func (c *counts) watchSlow(now time.Time) (next time.Time) {
	newest := versionOf(c.cache.newest())
	_, behind := c.conv.lag(newest)
	if behind == 0 && c.slow.total == 0 {
		return time.Time{}
	}
	if c.slow.lookAt.After(now) {
		return c.slow.lookAt
	}
	c.slow.lookAt = now.Add(SlowLook)
	var all []Slow
	for _, s := range c.subs.all {
		if p := &s.progress; (p.inFlight() || p.stuck(newest)) && now.Sub(s.flightAt) >= SlowAfter {
			all = append(all, Slow{Name: s.in.Name, gen: p.held.Gen, Since: s.flightAt})
		}
	}
	slices.SortFunc(all, func(a, b Slow) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name)) })
	before := c.slow.worst
	c.slow.total, c.slow.worst = len(all), slices.Clip(all[:min(len(all), wire.MaxStragglers)])
	if !slices.Equal(before, c.slow.worst) {
		c.schedule.acksChanged(now)
		c.due = true
	}
	c.cfg.Observer.Slow(now, len(all), c.slow.worst)
	if len(all) > 0 && now.Sub(c.slow.namedAt) >= slowLog {
		c.slow.namedAt = now
		names := make([]string, len(c.slow.worst))
		for i, s := range c.slow.worst {
			names[i] = s.Name
		}
		c.say(slog.LevelWarn, "subscribers do not acknowledge", "count", len(all), "after", SlowAfter,
			"longest", now.Sub(all[0].Since).Round(time.Second), "some", names)
	}
	return c.slow.lookAt
}

// measure notes how far the subscribers are, and how long the newest assignment took to
// reach the last of them.
func (c *counts) measure(now time.Time) {
	newest := c.cache.newest()
	if newest == nil {
		return
	}
	_, behind := c.conv.lag(versionOf(newest))
	c.cfg.Observer.Behind(behind)
	if behind == 0 && !c.arrived.IsZero() {
		c.cfg.Observer.Converged(now.Sub(c.arrived))
		c.arrived = time.Time{}
	}
}

// holds counts a subscriber as holding something.
func (c *counts) holds(now time.Time, id uint64, role slicerv1.Role, held Version) {
	changed, took, reached := c.conv.hold(now, id, held)
	if reached {
		c.cfg.Observer.Reached(role, took)
		c.pace(now, false)
	}
	if changed {
		idle := c.schedule.acks.at.IsZero()
		c.schedule.acksChanged(now)
		c.measure(now)
		if idle {
			c.due = true // or it is known already when they are due
		}
	}
}

// recount is for when a client has come or gone.
func (c *counts) recount(now time.Time) {
	c.pace(now, false)
	c.schedule.acksChanged(now)
	c.measure(now)
	c.due = true
}

// pace asks that hardly any connections are set up, and moves none away, while those that
// were connected when the newest assignment came wait for it, save the last hundredth, and
// for PauseFor of the config at most.
func (c *counts) pace(now time.Time, came bool) {
	waiting, all := c.conv.awaited()
	switch wait := waiting*100 > all; {
	case wait && came:
		c.paced = now.Add(c.cfg.PauseFor)
		c.do(Pause{})
	case !wait && !c.paced.IsZero():
		c.paced = time.Time{}
		c.do(Resume{})
	}
}

// rebalance moves some subscribers away if there are far more of them here: those that
// have been here longest, so that none is moved again before all others have been. They
// are clerks: a slicelet that came to a Distributor that the assigner does not hear could
// be taken for dead.
func (j *Job) rebalance(now time.Time) (next time.Time) {
	s := &j.rebalancer
	s.distributors, s.mean = 0, 0
	if j.up.known() && !j.cfg.SecondTier { // the first tier does not know what is of the second
		s.distributors, s.mean = int(j.up.answer.status.GetDistributors()), int(j.up.answer.status.GetMeanSubscribers())
	}
	here := j.conv.connected(slicerv1.Role_ROLE_CLERK) + j.conv.connected(slicerv1.Role_ROLE_SLICELET)
	was, rested := s.moving, s.restUntil
	n, next := s.look(now, here, j.counts.paced.After(now))
	if !s.restUntil.Equal(rested) {
		j.say(slog.LevelInfo, "subscribers that were moved away have come back", "subscribers", here, "mean", s.mean, "not_again_for", s.rest)
	}
	if n == 0 {
		return next
	}
	var some []*subscriber
	for _, sub := range j.subs.all {
		if !sub.ended && sub.in.Role == slicerv1.Role_ROLE_CLERK && now.Sub(sub.joined) >= rebalanceAfter && !sub.progress.inFlight() && !sub.sending {
			some = append(some, sub)
		}
	}
	if len(some) < n {
		if next = s.found(now, next, here, n, len(some)); len(some) == 0 {
			return next
		}
	}
	if !was {
		j.say(slog.LevelInfo, "far more subscribers than others have, moving some away", "subscribers", here, "mean", s.mean, "distributors", s.distributors)
	}
	for _, sub := range some[:min(n, len(some))] {
		j.end(sub, elsewhere())
		j.cfg.Observer.MovedAway()
	}
	return next
}

// elsewhere sends a subscriber to another Distributor, and back only if it knows no other.
func elsewhere() error {
	s := status.New(codes.Unavailable, "other distributors have fewer subscribers")
	if with, err := s.WithDetails(&slicerv1.RetryAfter{AfterMs: retryAfter.Milliseconds()}); err == nil {
		s = with
	}
	return s.Err()
}

// autoshardingClient is a client of gRPC's auto-sharding protocol. It counts as a clerk,
// save while it refuses what it is sent: then as an observer, for which nothing waits.
type autoshardingClient struct {
	name     string
	joined   time.Time
	held     assignment.Generation
	refusing bool
}

// client takes what concerns a client of gRPC's auto-sharding protocol.
func (j *Job) client(now time.Time, e Event) {
	switch e := e.(type) {
	case ClientCame:
		if err := j.admit(now); err != nil {
			j.do(Refuse{e.ID, err})
			return
		}
		c := &autoshardingClient{name: e.Name, joined: now, held: e.Held, refusing: e.Observes}
		j.autosharding[e.ID] = c
		j.conv.join(e.ID, c.role(), c.name, j.heldByClient(c))
		j.schedule.acksChanged(now)
		j.cfg.Observer.Subscribers(slicerv1.Role_ROLE_CLERK, 1)
		j.counts.measure(now)
		j.due = true
	case ClientAsks:
		j.newestFor(now, e.ID)
	case ClientHolds:
		if c := j.autosharding[e.ID]; c != nil {
			c.held = e.Gen
			j.setRefusing(now, e.ID, c, false)
			j.counts.holds(now, e.ID, slicerv1.Role_ROLE_CLERK, j.heldByClient(c))
		}
	case ClientRefuses:
		if c := j.autosharding[e.ID]; c != nil {
			j.cfg.Observer.Refused()
			j.setRefusing(now, e.ID, c, true)
		}
	case ClientObserves:
		if c := j.autosharding[e.ID]; c != nil {
			j.setRefusing(now, e.ID, c, true)
		}
	}
}

// role is what a client counts as.
func (c *autoshardingClient) role() slicerv1.Role {
	if c.refusing {
		return slicerv1.Role_ROLE_OBSERVER
	}
	return slicerv1.Role_ROLE_CLERK
}

// heldByClient is what a client counts as holding. It cannot say of which store that is:
// the one that assignments are of now is assumed.
func (j *Job) heldByClient(c *autoshardingClient) Version {
	if newest := j.cache.newest(); newest != nil && c.held != 0 {
		return Version{newest.StoreID(), c.held}
	}
	return Version{Gen: c.held}
}

func (j *Job) newestFor(now time.Time, id uint64) {
	c := j.autosharding[id]
	newest := j.cache.newest()
	switch {
	case j.up.unknown():
		j.do(Newest{Err: j.up.notFound()})
	case newest != nil:
		if c != nil {
			j.counts.holds(now, id, slicerv1.Role_ROLE_CLERK, j.heldByClient(c))
		}
		j.do(Newest{Assignment: newest})
	case c == nil:
		j.do(Newest{Err: j.up.unavailable()})
	case j.up.known():
		j.do(Newest{Again: Patience})
	default:
		if again := j.up.answer.since(c.joined).Add(Patience).Sub(now); again > 0 {
			j.do(Newest{Again: again})
		} else {
			j.do(Newest{Err: j.up.unavailable()})
		}
	}
}

func (j *Job) setRefusing(now time.Time, id uint64, c *autoshardingClient, refusing bool) {
	if c.refusing == refusing {
		return
	}
	c.refusing = refusing
	j.conv.join(id, c.role(), c.name, j.heldByClient(c))
	j.counts.recount(now)
}
