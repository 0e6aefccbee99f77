package loadbalance

import (
	"cmp"
	"slices"
)

// eject makes room for a slice of task h that is too hot for any task as they
// are: one more task takes it, none that warms up, as a replica if that is allowed and instead of h
// otherwise, and pushes its densest small slices on to other tasks that have
// room. All of it is one move with one weight, and of all such the one with the largest
// is made.
func (c *rebalancer) eject(h uint32) bool {
	var best ejection
	// The heaviest slices are the ones for which no task has room.
	heavy := slices.Clone(c.own[h])
	slices.SortFunc(heavy, func(x, y int32) int {
		return cmp.Or(cmp.Compare(c.pieces[y].share(), c.pieces[x].share()), cmp.Compare(c.pieces[x].start, c.pieces[y].start))
	})
	for _, i := range heavy[:min(len(heavy), 4)] {
		p := &c.pieces[i]
		if p.share() < .05*c.level {
			break
		}
		if p.fixed {
			continue
		}
		for _, k := range [...]Kind{KindReplicate, KindMove} {
			if k == KindReplicate && (p.replicas() >= c.max || !c.roomFor(1)) {
				continue
			}
			var tried []uint32
			for range 3 {
				t, ok := c.cold.warm.first(func(t uint32) bool { return c.holds(p, t) && !c.has(p, t) && !slices.Contains(tried, t) })
				if !ok {
					break
				}
				tried = append(tried, t)
				if e, ok := c.makeRoom(i, h, t, k); ok && (best.kind == "" || e.weight() > best.weight()) {
					best = e
				}
			}
		}
	}
	if best.kind == "" {
		return false
	}
	c.makeEjection(h, &best)
	return true
}

// ejection is a compound move: piece goes to a task as well, or instead, and pushes with it.
type ejection struct {
	option
	to     uint32
	pushes []push
}

// leastCost is the share of the keyspace that a compound move costs at least: among those
// that move next to no keys the one that gains most is made.
const leastCost = .001

func (e *ejection) weight() float64 { return e.benefit / (e.cost + leastCost) }

// push is a slice that goes from one task to another.
type push struct {
	i    int32
	from uint32
	to   uint32
}

// dense is a slice, and its load by its width.
type dense struct {
	i       int32
	density float64
}

// carried is what a task would carry.
type carried struct {
	task uint32
	load float64
}

// makingRoom is memory that attempts to make room use again and again.
type makingRoom struct {
	dense []dense
	after []carried // by the tasks that would carry something else, each once
}

// foretold is what task t would carry: what it does, if nothing else is said.
func (c *rebalancer) foretold(t uint32) float64 {
	for i := range c.after {
		if c.after[i].task == t {
			return c.after[i].load
		}
	}
	return c.load[t]
}

// foretell says what task t would carry.
func (c *rebalancer) foretell(t uint32, load float64) {
	for i := range c.after {
		if c.after[i].task == t {
			c.after[i].load = load
			return
		}
	}
	c.after = append(c.after, carried{t, load})
}

// enough is how little a task may carry too much for nothing to be pushed off it.
func (c *rebalancer) enough() float64 { return .002 * c.level }

// pushable are the slices of task t, but for piece i, that may be pushed on when it
// would carry too much by excess, the densest first.
func (c *rebalancer) pushable(t uint32, i int32, excess float64) []dense {
	c.dense = c.dense[:0]
	if excess <= c.enough() {
		return nil
	}
	for _, j := range c.own[t] {
		q := &c.pieces[j]
		if s := q.share(); j != i && !q.fixed && s > 0 && !c.thin(j) && c.small(s, excess) {
			c.dense = append(c.dense, dense{j, s / q.width()})
		}
	}
	slices.SortFunc(c.dense, func(x, y dense) int {
		return cmp.Or(cmp.Compare(y.density, x.density), cmp.Compare(c.pieces[x.i].start, c.pieces[y.i].start))
	})
	return c.dense
}

// small says that pushing on so much leaves a task with hardly too little.
func (c *rebalancer) small(share, excess float64) bool { return share <= excess+.02*c.level }

// makeRoom weighs putting piece i on task t, too, or instead of on h.
func (c *rebalancer) makeRoom(i int32, h, t uint32, k Kind) (e ejection, ok bool) {
	p := &c.pieces[i]
	s := p.share()
	cost := p.width()
	c.after = c.after[:0]
	if k == KindReplicate {
		after := p.load / float64(p.replicas()+1)
		for _, o := range c.owners(p) {
			c.foretell(o, c.load[o]-s+after)
		}
		c.foretell(t, c.load[t]+after)
	} else {
		c.foretell(h, c.load[h]-s)
		c.foretell(t, c.load[t]+s)
	}
	limit := c.level
	excess := func() float64 { return c.foretold(t) - limit*c.weight[t] }
	// Push the densest slices that still leave something to push.
	var pushes []push
	for _, d := range c.pushable(t, i, excess()) {
		over := excess()
		if over <= c.enough() {
			break
		}
		q := &c.pieces[d.i]
		qs := q.share()
		if !c.small(qs, over) || c.moved+cost+q.width() > c.budget {
			continue
		}
		fits := func(x uint32) bool {
			return x != t && !c.has(q, x) && (c.foretold(x)+qs)/c.weight[x] <= limit
		}
		to, ok := h, fits(h)
		if !ok {
			to, ok = c.fitting(fits)
		}
		if !ok {
			continue
		}
		pushes = append(pushes, push{d.i, t, to})
		c.foretell(to, c.foretold(to)+qs)
		c.foretell(t, c.foretold(t)-qs)
		cost += q.width()
	}
	gain := 0.0
	slices.SortFunc(c.after, func(x, y carried) int { return cmp.Compare(x.task, y.task) })
	for _, x := range c.after {
		gain += c.over(x.task, c.load[x.task]) - c.over(x.task, x.load)
	}
	if c.moved+cost > c.budget {
		c.spent = true
		return e, false
	}
	if gain <= 1e-6+1e-6*c.over(h, c.load[h]) {
		return e, false
	}
	return ejection{option{k, i, gain, cost}, t, pushes}, true
}

// makeEjection makes the move.
func (c *rebalancer) makeEjection(h uint32, e *ejection) {
	i, t := e.piece, e.to
	if e.kind == KindReplicate {
		c.add(i, t)
	} else {
		c.replace(i, h, t)
	}
	p := &c.pieces[i]
	c.say(KindEject, ReasonHotSlice, i, int(h), int(t), e.benefit, p.width(), p.share())
	for _, x := range e.pushes {
		c.replace(x.i, x.from, x.to)
		q := &c.pieces[x.i]
		c.say(KindEject, ReasonRoom, x.i, int(x.from), int(x.to), e.benefit, q.width(), q.share())
		c.refresh(x.from, x.to)
	}
	c.moved += e.cost
	c.refresh(h, t)
	c.refresh(c.owners(p)...)
}

// fitting looks for a cold task, among the few coldest.
func (c *rebalancer) fitting(fits func(uint32) bool) (uint32, bool) {
	tries, found := 0, false
	t, ok := c.cold.warm.first(func(t uint32) bool {
		tries++
		found = fits(t)
		return tries > 12 || found
	})
	return t, ok && found
}
