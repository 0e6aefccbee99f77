package cluster

import (
	"time"

	"github.com/slicer-project/slicer/assigner/preference"
)

// A dead process may own keys for as long as its death is not known, and no longer,
// provided that these could know it and act: the assigner that the store's candidates
// make preferred, the store, and every Distributor attached to that assigner run and
// reach each other, and no operator has the job frozen. From the last moment at which
// that was not so, or became so anew, or from its death if that was later, or the moment
// at which its last words got through, it takes
//
//   - until all Distributors have been heard from, after a takeover: 2 s;
//   - the heartbeat timeout, 5 s, after the last news, which may take long to come;
//   - a sign of a Distributor that has no such news, which comes each 500 ms, and a look
//     at that, each 250 ms;
//   - a round, which may be put off for 1 s, and its write.
//
// The waits between attempts to use a store that had failed, up to 5 s, are over by then.
const (
	decides  = time.Second + 2*slowest
	ownsDead = 2*time.Second + 5*time.Second + slowest + 500*time.Millisecond + slowest + 250*time.Millisecond + decides
	// A task has longer, 10 s in place of the 5, when a Distributor is lost or an assigner
	// new: its own may have lost the assigner, and it has to find another.
	regroups = 5 * time.Second
	// It takes longer while so many tasks are missed that the assigner distrusts itself.
	thaws = 30 * time.Second
)

// standing is who could see to it that the dead own nothing: the process of an
// assigner, and the sum of its connections from Distributors.
type standing struct {
	assigner *assignerHost
	life     uint64
	conns    uint64
}

// standing is what could act just now; ok is false when nothing can.
func (w *world) standing() (s standing, ok bool) {
	if !w.store.up || w.store.paused || w.store.overrides.Freeze != nil {
		return s, false
	}
	c, _ := preference.Choose(w.store.view(), job, "")
	for _, a := range w.assigners {
		if a.name != c.ID || !a.up || a.paused || w.apart(a.host, w.store.host) {
			continue
		}
		s.assigner, s.life = a, a.life
		for c := range a.peers {
			d := c.ends[0]
			if d.closed || c.lost || !d.host.up || d.host.paused || w.apart(d.host, a.host) {
				return s, false
			}
			s.conns += c.id
		}
		return s, len(a.peers) > 0
	}
	return s, false
}

// look is called whenever that may have changed.
func (c *checker) look() {
	if a := c.w.charged(); a != c.charged {
		if c.charged = a; a != nil {
			a.chargedAt = c.w.at
		}
	}
	s, ok := c.w.standing()
	if !ok || !c.able || s != c.stands {
		c.since = c.w.at
	}
	c.stands, c.able = s, ok
}

// failed takes note that a request of a host to the store came to nothing: if it is
// that of who could act, that has to try again.
func (c *checker) failed(from *host) {
	if a := c.stands.assigner; a != nil && a.host == from {
		c.since = c.w.at
	}
}

// late takes note that what a process has said gets through after it has ended.
func (c *checker) late(from *host) {
	for _, g := range c.graves {
		if g.name == from.name {
			g.news = c.w.at
		}
	}
}

// bury sees to it that a process that has ended does not own keys for too long.
func (c *checker) bury(g *grave) {
	if !g.watched {
		c.watch(g, c.due(g))
	}
}

// due is when it may no longer own keys, if nothing happens until then.
func (c *checker) due(g *grave) time.Duration {
	return max(max(g.at, g.news)+ownsDead, c.since+ownsDead+regroups, g.frozen+time.Second+decides)
}

func (c *checker) watch(g *grave, at time.Duration) {
	g.watched = true
	c.w.schedule(at, 1<<61, func() {
		g.watched = false
		c.overdue(g)
	})
}

func (c *checker) overdue(g *grave) {
	w, a := c.w, c.w.store.stored
	if a == nil {
		return
	}
	pos, ok := a.Position(g.name)
	switch {
	case !ok || a.Task(pos).Incarnation != g.incarnation || !owns(a, pos):
		if c.able && w.at >= c.due(g) {
			c.deaths.inTime++
		}
	case !c.able || !w.heir():
		c.watch(g, w.at+ownsDead) // it is not overdue before that
	case c.stands.assigner.sim.Core(job).Frozen() && w.at < max(g.at, g.news, c.since)+ownsDead+regroups+thaws:
		g.frozen = w.at
		c.watch(g, w.at+time.Second)
	case w.at < c.due(g):
		c.watch(g, c.due(g))
	default:
		w.fail("%s/%x has ended at %s and owns keys in generation %d, although %s could know and act for %s",
			g.name, g.incarnation, g.at, a.Generation(), c.stands.assigner.name, w.at-max(g.at, g.news, c.since))
	}
}

// heir reports whether there is a process that could own keys.
func (w *world) heir() bool {
	for _, s := range w.slicelets {
		if s.up && !s.paused && !s.draining && w.at-s.born >= ownsDead && w.store.overrides.Excludes(s.name) == nil {
			return true
		}
	}
	return false
}
