package generate

import (
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
)

// Acks is how far the subscribers of one Distributor have come.
type Acks struct {
	Min               assignment.Generation // that all of them hold
	Empty             bool                  // there are none
	Stragglers        []string
	Clerks, Slicelets uint32
}

// Acked takes in how far a Distributor's subscribers have come.
func (c *Core) Acked(now Now, s membership.Session, a Acks) {
	c.tick(now)
	if d := c.lead.distributor(s); d != nil {
		d.acks = &a
		c.lead.found(d.name)
	}
}

// lostFor is how long the subscribers of a Distributor whose stream has ended are still
// waited for: it may have lost only this assigner, and they may be there still. By then
// slicelets have gone to one that is heard, and those of a dead one to any other.
const lostFor = 15 * time.Second

// lost is a Distributor whose stream has ended, and how far its subscribers were.
type lost struct {
	name string
	at   time.Duration
	acks Acks
}

// Convergence is how far the subscribers of all Distributors have come.
type Convergence struct {
	// Generation is one that all of them hold, or a newer one; 0 when not known.
	Generation        assignment.Generation
	Stragglers        []string // at most 16; good until the next look
	Clerks, Slicelets uint32
}

// heardWithin is how long ago a Distributor may have said something at most for
// subscribers to be sent to it. It says something each half a second.
const heardWithin = 2 * time.Second

// Spread says over how many Distributors the job's subscribers could be spread, and how
// many each would have if all had as many. Both are 0 if that is not known: not every
// Distributor is heard, or has said what it has.
func (v View) Spread() (distributors, mean int) {
	if !v.c.lead.isPreferred() || v.c.members.table == nil || v.c.members.table.Listening() != "" {
		return 0, 0
	}
	all := 0
	for _, d := range v.c.lead.sessions {
		if d.heard < v.c.now.Mono-heardWithin || d.acks == nil && d.wants {
			return 0, 0
		}
		if d.acks != nil {
			all += int(d.acks.Clerks) + int(d.acks.Slicelets)
		}
	}
	n := max(len(v.c.lead.sessions), 1)
	return n, (all + n - 1) / n
}

// Convergence sums up what Distributors have acknowledged. Only the preferred
// assigner knows, and only when it has heard from all of them. Of one that it has lost
// a little while ago it goes by what that has said last.
func (v View) Convergence() Convergence {
	x := Convergence{Stragglers: v.c.lead.stragglers[:0]}
	known := v.c.lead.isPreferred() && v.c.store.newest != nil && v.c.members.table != nil && v.c.members.table.Listening() == ""
	least := generation(v.c.store.newest)
	for _, d := range v.c.lead.sessions {
		a := d.acks
		if a == nil {
			if d.wants {
				known = false
				x.Stragglers = append(x.Stragglers, "distributor "+d.name)
			}
			continue
		}
		x.Clerks += a.Clerks
		x.Slicelets += a.Slicelets
		if !a.Empty {
			least = min(least, a.Min)
			x.Stragglers = append(x.Stragglers, a.Stragglers...)
		}
	}
	for _, l := range v.c.lead.lost {
		if v.c.now.Mono-l.at < lostFor && l.acks.Min < generation(v.c.store.newest) {
			least = min(least, l.acks.Min)
			x.Stragglers = append(x.Stragglers, "distributor "+l.name)
		}
	}
	if known {
		x.Generation = least
	}
	slices.Sort(x.Stragglers)
	v.c.lead.stragglers = x.Stragglers
	x.Stragglers = slices.Compact(x.Stragglers)
	x.Stragglers = x.Stragglers[:min(len(x.Stragglers), wire.MaxStragglers)]
	return x
}
