package cluster

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// A task that drains does as package slicelet's Drain and the adapters' do.
const (
	drainPoll, drainGrace, quietTime = 100 * time.Millisecond, 3 * time.Second, 500 * time.Millisecond
	// drainDelay is between the drain and the end of the server, drainTimeout when it ends anyway.
	drainDelay, drainTimeout = 500 * time.Millisecond, 30 * time.Second
	// tells is in what time the control plane tells clerks that a task drains: what it says goes to
	// its Distributor, the assigner, the clerk's Distributor and the clerk, the slowest each time, and
	// waits for others of its kind at both Distributors and for an early round.
	tells = 4*slowest + 4*100*time.Millisecond
	// connects is how long a clerk has to be connected to count as one that has to know where keys
	// have moved.
	connects = 3 * time.Second
	// keyless is how many requests a second have no key: any task will do, of which there are
	// mostly more than fewTasks.
	keyless, fewTasks = 6., 10.
	noKey             = -1
)

// leaving is how far a task's drain has come.
type leaving struct {
	began   time.Duration
	arrived uint64                // requests
	moved   assignment.Generation // since which it has owned nothing, 0 while it owns something
	quiet   time.Duration         // since when clients have known and no request has arrived, -1 before
	stopped bool                  // it takes nothing any more: all was done in order
}

// drain has the slicelet give up its slices, end in order, and then start anew.
func (s *sliceletHost) drain() {
	if !s.runs() || s.draining {
		return
	}
	s.w.note("%s drains", s.name)
	s.w.check.overload.drains++
	s.w.check.drains(s)
	s.draining, s.leaving = true, leaving{began: s.w.at, quiet: -1}
	s.sub.Report(s.now(), s.report())
	s.act()
	s.lookDrained()
}

func (s *sliceletHost) lookDrained() {
	s.after(drainPoll, func() {
		switch {
		case s.drained():
			s.after(drainDelay, s.stop)
		case s.w.at-s.leaving.began >= drainTimeout:
			s.anew()
		default:
			s.lookDrained()
		}
	})
}

// drained reports whether the task need not go on.
func (s *sliceletHost) drained() bool {
	d, now := &s.leaving, s.w.at
	if n := s.room.first + s.room.again; n != d.arrived {
		if d.arrived = n; d.quiet >= 0 {
			d.quiet = now
		}
	}
	switch pos, ok := s.place(); {
	case ok && owns(s.state.Assignment, pos):
		d.moved, d.quiet = 0, -1
		return false
	case !(ok && s.state.Assignment.Task(pos).State == assignment.TaskDraining) && now-d.began < drainGrace:
		return false
	}
	if d.moved == 0 {
		d.moved = generation(s.state.Assignment)
	}
	switch {
	case s.state.Status.Converged < d.moved:
		d.quiet = -1
	case d.quiet < 0:
		d.quiet = now
	}
	return d.quiet >= 0 && now-d.quiet >= quietTime
}

// stop has the task end as soon as it has answered what it has.
func (s *sliceletHost) stop() {
	if !s.leaving.stopped {
		s.w.note("%s is drained", s.name)
		s.leaving.stopped = true
		s.w.check.stopped(s)
	}
	if r := s.room; len(r.queue) > 0 || r.underWay > 0 {
		r.giveUp()
		s.after(drainPoll, s.stop)
		return
	}
	s.anew()
}

func (s *sliceletHost) anew() {
	s.kill(false)
	s.w.schedule(s.w.at+2*time.Second, uint64(s.id), s.start)
}

// wander is a request without a key, and the next.
type wander traffic

func (x *wander) happen() {
	t := (*traffic)(x)
	t.next(keyless, 1<<57, x)
	if c := t.w.clerks[t.rng.IntN(len(t.w.clerks))]; c.runs() {
		c.ask(noKey, nil, drawLabels(t.rng, &usualMix))
	}
}

// mayGo are the tasks that a request may go to.
func (c *clerkHost) mayGo(a *ask) (list []*sliceletHost) {
	add := func(t assignment.Task) {
		if s := c.w.named[t.Name]; !a.hasTried(s) {
			list = append(list, s)
		}
	}
	x := c.asking.routed
	if a.key != noKey {
		for t := range x.Lookup(c.w.traffic.keys[a.key]).All() {
			add(t)
		}
		return list
	}
	for _, t := range x.Tasks() {
		if t.State == assignment.TaskRunning || t.State == assignment.TaskDraining {
			add(t)
		}
	}
	return list
}

// told reports whether a clerk knows that a task drains.
func (c *clerkHost) told(s *sliceletHost) bool {
	t := &c.asking.tasks[s.at]
	if !c.asking.stock && (t.draining || t.drains) {
		return true
	}
	pos, ok := c.asking.routed.Position(s.name)
	return ok && c.asking.routed.Task(pos).State == assignment.TaskDraining
}

// connected reports whether a subscriber has been told all for so long, as far as that is for the
// control plane to do.
func (c *checker) connected(by *subscriberHost, long time.Duration) bool {
	_, since, ok := c.w.serves(by)
	return ok && by.up && c.able && c.w.at-max(since, c.since) >= long
}

// spares looks at whether a clerk sends a request to a task of which it has been told that it
// drains, though another could take it.
func (c *checker) spares(by *clerkHost, a *ask, s *sliceletHost) {
	if !s.draining || s.leaving.stopped || by.asking.stock {
		return
	}
	c.overload.toDraining++
	others := candidates{c: by, a: a, list: by.mayGo(a)}
	for i, o := range others.list {
		if x := others.At(i); o == s || x.Full || by.told(o) {
			continue
		}
		if by.told(s) {
			c.w.fail("%s sends a request to %s, of which it knows that it drains, and %s could take it", by.name, s.name, o.name)
		}
		_, since, ok := c.w.serves(&s.subscriberHost)
		if ok && s.runs() && c.w.at-max(since, s.leaving.began) >= tells && by.runs() && c.connected(&by.subscriberHost, tells) {
			c.w.fail("%s has not been told that %s drains, since %s, and sends it a request that %s could take", by.name, s.name, s.leaving.began, o.name)
		}
		return
	}
}

// stopped looks at whether all subscribers that are connected know that a task that ends owns
// nothing. Those that are paused do not.
func (c *checker) stopped(s *sliceletHost) {
	c.overload.drained++
	for _, by := range c.w.subscribers() {
		if g := generation(by.state.Assignment); g < s.leaving.moved && c.connected(by, connects) {
			c.w.fail("%s ends, whose slices have moved in generation %d, and %s holds %d", s.name, s.leaving.moved, by.name, g)
		}
	}
}

// turnedAway looks at a request that reaches a task which has ended in order.
func (c *checker) turnedAway(a *ask) {
	c.overload.turnedAway++
	s := a.to
	if a.key == noKey && (a.from.asking.stock || !c.connected(&a.from.subscriberHost, connects)) {
		return
	}
	// What the process before it owned is not for a task to give up.
	if pos, ok := a.from.asking.routed.Position(s.name); !ok || a.from.asking.routed.Task(pos).Incarnation != s.task.Incarnation {
		return
	}
	if a.routed >= s.leaving.moved || c.connected(&a.from.subscriberHost, connects) {
		c.w.fail("%s, which had generation %d, has sent %s a request, which has drained and owned nothing since %d", a.from.name, a.routed, s.name, s.leaving.moved)
	}
}

// back looks at whether clerks take a task for one that drains which does not, when all is settled.
func (c *checker) back() {
	for _, by := range c.w.clerks {
		for _, s := range c.w.slicelets {
			if by.told(s) && !s.draining {
				c.w.fail("%s takes %s for one that drains, which does not", by.name, s.name)
			}
		}
	}
}
