package cluster

import (
	"time"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/protocol"
	"github.com/slicer-project/slicer/loadbalance"
)

const (
	// Most tasks vanish at once: none is declared dead before this, which is the default
	// of 30 s, and one round of looking, less; or before so many are back that the
	// assigner trusts the network again. As soon as they have been missed, and for so
	// long, none loses slices either.
	missed, frozenFor, trusted = 7 * time.Second, 28 * time.Second, .75
	// calm is how long after the last fault everything has to be right again.
	calm = 90 * time.Second
)

// checker knows what must be, apart from the parts that bring it about.
type checker struct {
	w    *world
	sums map[assignment.Generation]uint64
	// graves are processes that have ended: since when, and whether a stored
	// assignment has called them dead.
	graves map[uint64]*grave
	writes int
	last   time.Duration // when one was
	backup counts
	// vanished is when most of the tasks did, at once and out of the blue.
	vanished time.Duration
	// Who could see to it that the dead own nothing, whether they can, and since when
	// that has been so without a break.
	stands standing
	able   bool
	since  time.Duration
	deaths deaths
	// charged is the assigner that the store's candidates make preferred.
	charged *assignerHost
	// overload is of requests.
	overload overloads
}

// deaths are of slicelets' processes, and how many of those own nothing when they may
// not any more, after a time in which nothing kept the others from seeing to it.
type deaths struct{ all, inTime int }

// counts say how often the Backup Distributors were needed.
type counts struct {
	outages     int
	falls, back int // from a Distributor to a Backup one, and to a Distributor again
	taken       int // assignments from a Backup one, newer than what was held
}

// holding is what a subscriber's process held when that was looked at last.
type holding struct {
	life uint64
	a    *assignment.Assignment
}

type grave struct {
	name        string
	incarnation uint64
	at          time.Duration
	news        time.Duration // when something that it has said was held up until, if it was
	stored      bool          // as dead
	watched     bool          // it is looked at whether it owns keys for too long
	frozen      time.Duration // when that was not so because of a freeze last
}

func newChecker(w *world) *checker {
	return &checker{w: w, overload: overloads{leastOfLimit: 1}, sums: map[assignment.Generation]uint64{}, graves: map[uint64]*grave{}}
}

func (c *checker) died(s *sliceletHost) {
	c.deaths.all++
	g := &grave{name: s.name, incarnation: s.task.Incarnation, at: c.w.at}
	c.graves[g.incarnation] = g
	c.bury(g)
}

// written looks at what is about to be stored.
func (c *checker) written(prev, next *assignment.Assignment) {
	c.writes, c.last = c.writes+1, c.w.at
	if prev != nil && next.Generation() <= prev.Generation() {
		c.w.fail("generation %d would follow %d", next.Generation(), prev.Generation())
	}
	c.sums[next.Generation()] = next.Checksum()
	if since := c.w.at - c.vanished; c.vanished > 0 && since > missed && since < frozenFor && c.up() < trusted {
		c.frozen(prev, next)
	}
	c.obeyed(next)
	owner := make([]bool, next.NumTasks())
	for i := range next.NumSlices() {
		r := next.Replicas(i)
		if r.Len() == 0 {
			c.w.fail("generation %d: no task owns %s", next.Generation(), next.Slice(i))
		}
		for k := range r.Len() {
			owner[r.Position(k)] = true
		}
	}
	for pos, t := range next.Tasks() {
		g := c.graves[t.Incarnation]
		switch {
		case owner[pos] && t.State != assignment.TaskRunning:
			c.w.fail("generation %d: %s owns slices and is %s", next.Generation(), t.Name, t.State)
		case g == nil:
		case owner[pos] && !g.stored:
			c.bury(g)
		case t.State == assignment.TaskRunning && g.stored:
			c.w.fail("generation %d: %s runs again, whose process %x has ended at %s and was stored as dead", next.Generation(), t.Name, t.Incarnation, g.at)
		case t.State == assignment.TaskDead:
			g.stored = true
		}
	}
}

// obeyed looks at whether what is about to be stored is as operators have ordered.
func (c *checker) obeyed(next *assignment.Assignment) {
	orders := &c.w.store.overrides
	if orders.Freeze != nil {
		c.w.fail("generation %d is written although the job is frozen by order %d", next.Generation(), orders.Freeze.Order)
	}
	for _, x := range orders.Exclude {
		if pos, ok := next.Position(x.Task); ok && owns(next, pos) {
			c.w.fail("generation %d gives slices to %s, which is excluded by order %d", next.Generation(), x.Task, x.Order)
		}
	}
	for _, p := range orders.Pins {
		pos, ok := next.Position(p.Task)
		if !ok || next.Task(pos).State != assignment.TaskRunning {
			continue
		}
		for i := next.Find(p.Slice.Start); i < next.NumSlices() && next.Slice(i).Start < p.Slice.End; i++ {
			if r := next.Replicas(i); r.Len() != 1 || !r.Has(pos) {
				c.w.fail("generation %d: %s is pinned to %s by order %d, which is not its only owner", next.Generation(), next.Slice(i), p.Task, p.Order)
			}
		}
	}
}

// frozen looks at what is stored while most of the tasks are missed, because they
// have vanished at once.
func (c *checker) frozen(prev, next *assignment.Assignment) {
	for _, t := range next.Tasks() {
		if p, ok := prev.Position(t.Name); t.State == assignment.TaskDead && ok && prev.Task(p).State != assignment.TaskDead && !c.w.named[t.Name].leaving.stopped {
			c.w.fail("generation %d: %s is dead %s after most of the tasks had vanished at once", next.Generation(), t.Name, c.w.at-c.vanished)
		}
	}
	for i := range prev.NumSlices() {
		was := prev.Slice(i)
		for k := next.Find(was.Start); k < next.NumSlices() && next.Slice(k).Start < was.End; k++ {
			for r := range prev.Replicas(i).Len() {
				name := prev.Task(prev.Replicas(i).Position(r)).Name
				if p, ok := next.Position(name); !ok || !next.Replicas(k).Has(p) {
					c.w.fail("generation %d: %s loses %s %s after most of the tasks had vanished at once", next.Generation(), name, next.Slice(k), c.w.at-c.vanished)
				}
			}
		}
	}
}

// up is the share of the slicelets that run.
func (c *checker) up() float64 {
	n := 0
	for _, s := range c.w.slicelets {
		if s.up {
			n++
		}
	}
	return float64(n) / float64(len(c.w.slicelets))
}

// decided looks at the round that an assigner has just written.
func (c *checker) decided(a *assignerHost) {
	core := a.sim.Core(job)
	r := core.LastRound()
	if r.Why != generate.ReasonLoad || r.Generation == 0 {
		return
	}
	moved := 0.0
	for _, d := range r.Decisions {
		if d.Reason == loadbalance.ReasonPinned {
			continue // an operator's order
		}
		switch d.Kind {
		case loadbalance.KindMove, loadbalance.KindReplicate, loadbalance.KindMerge, loadbalance.KindEject:
			moved += d.KeyChurn
		}
	}
	if j, _, _ := core.Job(); moved > j.Config.Balance.MoveBudget+j.Config.Balance.MergeBudget+1e-9 {
		c.w.fail("generation %d moves %.4f of the keyspace for the sake of load", r.Generation, moved)
	}
}

// published looks at what a subscriber holds.
func (c *checker) published(s *subscriberHost) {
	a := s.state.Assignment
	switch was := s.link; {
	case s.state.Link == protocol.Backup && was != protocol.Backup:
		c.backup.falls++
	case s.state.Link == protocol.Distributor && was == protocol.Backup:
		c.backup.back++
	}
	if s.state.Link != 0 {
		s.link = s.state.Link
	}
	if a == nil {
		return
	}
	h := s.held
	if h.life == s.life {
		if h.a == a {
			return // as it was, for assignments do not change
		}
		if a.Generation() < h.a.Generation() {
			c.w.fail("%s goes back from generation %d to %d", s.name, h.a.Generation(), a.Generation())
		}
	}
	s.held = holding{s.life, a}
	if s.state.Source == protocol.Backup {
		c.backup.taken++
	}
	sum, ok := c.sums[a.Generation()]
	if !ok {
		c.w.fail("%s holds generation %d, which was never stored", s.name, a.Generation())
	}
	if sum != a.Checksum() {
		c.w.fail("%s holds something else as generation %d than was stored", s.name, a.Generation())
	}
}

// subscribers are all slicelets and clerks.
func (w *world) subscribers() (all []*subscriberHost) {
	for _, s := range w.slicelets {
		all = append(all, &s.subscriberHost)
	}
	for _, s := range w.clerks {
		all = append(all, &s.subscriberHost)
	}
	return all
}

// onBackup looks at the subscribers that have had no Distributor for long.
func (c *checker) onBackup() {
	n, newest := 0, generation(c.w.store.stored)
	for _, s := range c.w.subscribers() {
		if !s.up || s.state.Link == protocol.Distributor {
			continue
		}
		n++
		if s.state.Link != protocol.Backup || generation(s.state.Assignment) != newest && c.w.at >= c.last+arrive {
			c.w.fail("%s has no Distributor and holds generation %d, stored is %d; it is served by %s: %v", s.name, generation(s.state.Assignment), newest, s.state.Peer, s.state.Err)
		}
	}
	if n < len(c.w.clerks) {
		c.w.fail("%d are without a Distributor", n)
	}
}

// settled looks at everything when there have been no faults for a while.
func (c *checker) settled() {
	a := c.w.store.stored
	if a == nil {
		c.w.fail("there is no assignment")
	}
	running := map[uint64]*sliceletHost{}
	follow := func(s *subscriberHost) {
		if got := s.state.Assignment; got == nil || got.Generation() != a.Generation() {
			c.w.fail("%s holds generation %v, stored is %d; it is served by %s: %v", s.name, generation(got), a.Generation(), s.state.Peer, s.state.Err)
		}
		if s.state.Link != protocol.Distributor {
			c.w.fail("%s has not come back to a Distributor: it is served by %s: %v", s.name, s.state.Peer, s.state.Err)
		}
	}
	for _, s := range c.w.subscribers() {
		follow(s)
	}
	for _, s := range c.w.slicelets {
		running[s.task.Incarnation] = s
	}
	for pos, t := range a.Tasks() {
		_, lives := running[t.Incarnation]
		if has := owns(a, pos); has != lives {
			c.w.fail("%s/%x lives: %v, owns slices: %v, state %s, in generation %d", t.Name, t.Incarnation, lives, has, t.State, a.Generation())
		}
		delete(running, t.Incarnation)
	}
	c.back()
	for _, s := range running {
		c.w.fail("%s lives and is not in generation %d", s.name, a.Generation())
	}
}

func generation(a *assignment.Assignment) assignment.Generation {
	if a == nil {
		return 0
	}
	return a.Generation()
}
