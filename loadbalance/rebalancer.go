package loadbalance

import (
	"math"
	"slices"
)

// rebalancer is phase 4 of weighted-move.
type rebalancer struct {
	*placement
	makingRoom
	level   float64 // what tasks should be brought down to, load by capacity
	floor   float64 // the largest load by capacity that some task must have
	largest float64 // capacity
	widest  float64 // capacity of the tasks that are the best place for a hot slice
	hot     *taskHeap
	cold    *takers
	budget  float64 // keyspace that may have moved in this round
	spent   bool    // a move was left out because it did not fit into the budget
	found   []int32 // room for what movable finds
}

// cool goes over the tasks, hottest first. A task that nothing can cool is
// set aside and the next one looked at, so that one unlucky task does not leave
// the others uneven.
func (b *placement) cool() {
	worth := b.worthMoving()
	c := &rebalancer{placement: b, level: b.aim()}
	c.hot = newTaskHeap(len(b.load), b.live, func(t uint32) float64 { return -b.ratio(t) })
	c.cold = b.newTakers(b.mean(), func(t uint32) float64 { return b.load[t] })
	for _, t := range b.abilities.full {
		if c.cold.warm.len() > 1 { // the others may be warming up
			c.cold.warm.drop(t)
		}
	}
	start, _ := b.band(c.level)
	limit, stop := b.limits(c.level, c.ratio(c.cold.warm.top()))
	if b.ratio(c.hot.top()) > limit && b.smooth != nil && b.smooth.trust.foretold() >= steady {
		b.narrow()
	}
	weights := b.sorted(b.weight)
	c.largest, c.floor = weights[0], c.unavoidable(weights)
	_, c.widest = widest(weights, b.max)
	for c.hot.len() > 0 && b.ratio(c.hot.top()) > limit {
		h := c.hot.top()
		c.budget = b.moveBudget() * worth
		// Where load comes in bursts, what lies beside a key that stays hot is in the
		// way of the next burst, even if some other task must be hotter now.
		stays := worth < steadyTrickle && b.steadyHot(h, start*c.level)
		if stays {
			c.budget = b.moveBudget() * steadyTrickle
		} else if b.ratio(h) <= c.floor && c.bound(h) {
			c.hot.drop(h)
			continue
		}
		if c.step(h) {
			limit = stop
			continue
		}
		c.hot.drop(h)
		why := ReasonStuck
		if c.spent {
			why = ReasonBudget
		}
		b.note(Decision{Kind: KindSkip, Reason: why, From: b.in.Tasks[h].Name, Benefit: b.ratio(h)/c.level - 1})
	}
}

// limits are the load by capacity above which something has to move, and the one that
// is then gone down to; coldest is the least that a task has.
func (b *placement) limits(level, coldest float64) (limit, stop float64) {
	start, end := b.band(level)
	limit, stop = start*level, end*level
	if start == b.cfg.BandStart && coldest < (1-coldBand*(start-1))*level {
		limit = stop
	}
	return limit, stop
}

// coldBand is how far below the level a task may be, beside how far above it another
// may be: less than 5 % with the usual band of 3 %.
const coldBand = 1.6

// steady is how much of what sets slices apart must be found again in the next
// measurement for the keys in them to be taken to stay as they are.
const steady = .75

// unavoidable is the largest load by capacity that no move can take off whichever
// task has it: that of a slice with as many replicas as allowed, on the tasks with
// the largest capacities.
func (c *rebalancer) unavoidable(weights []float64) float64 {
	top := 0.0
	for i := c.head; i >= 0; i = c.pieces[i].next {
		if p := &c.pieces[i]; p.fixed || p.replicas() >= c.max {
			top = max(top, p.share()/weights[p.replicas()-1])
		}
	}
	return top
}

// bound says that a task holds a slice that alone keeps it above the mean, and that
// no larger one could take. The rest of its load would be moved for nothing unless
// it made it the hottest.
func (c *rebalancer) bound(t uint32) bool {
	if c.weight[t] < c.largest {
		return false
	}
	for _, i := range c.own[t] {
		p := &c.pieces[i]
		if (p.fixed || p.replicas() >= c.max) && p.share() > c.mean()*c.weight[t] {
			return true
		}
	}
	return false
}

// band is the imbalance at which moving begins and the one at which it stops.
// Where the load of a task will be off by more than the configured band anyway,
// as with few requests or bursts, aiming better would be churn for nothing. So it
// would be where new tasks are about to take that load.
func (b *placement) band(level float64) (start, stop float64) {
	missing := b.missing()
	start, stop = b.cfg.BandStart+missing, b.cfg.BandStop+missing
	if b.smooth == nil {
		return start, stop
	}
	sigma := math.Sqrt(b.smooth.trust.unrest*float64(len(b.live))) * b.mean() / level
	wide := 1 + min(max(sigma-bandNoise, 0), 2)
	if wide > start {
		stop = 1 + (wide-1)*(stop-1)/max(start-1, 1e-9)
		stop = min(max(stop, b.cfg.BandStop), wide)
		start = wide
	}
	return start, stop
}

// bandNoise is the standard deviation of a task's load, as a share of the mean,
// that the configured band allows for.
const bandNoise = .1

// over is the squared overload of a task with some load.
func (c *rebalancer) over(t uint32, load float64) float64 {
	x := load/c.weight[t] - c.level
	if x <= 0 {
		return 0
	}
	x /= c.level
	return x * x * c.weight[t]
}

func (c *rebalancer) refresh(ts ...uint32) {
	for _, t := range ts {
		c.hot.set(t, -c.ratio(t))
		c.cold.refresh(t)
	}
}

// whyHot is why something leaves the hottest task.
func whyHot(in *Input, h uint32) Reason {
	l := in.Loads
	if l == nil || l.Shed == nil || in.Prev == nil {
		return ReasonHotTask
	}
	if pos, ok := in.Prev.Position(in.Tasks[h].Name); ok && pos < len(l.Shed) && l.Shed[pos] > 0 {
		return ReasonShed
	}
	return ReasonHotTask
}

// step makes the best move that cools task h; false if there is none.
func (c *rebalancer) step(h uint32) bool {
	c.spent = false
	best, to := c.bestMove(h)
	if best.kind == "" {
		return c.eject(h)
	}
	p := &c.pieces[best.piece]
	c.moved += p.width()
	switch best.kind {
	case KindMove:
		c.replace(best.piece, h, to)
		c.say(KindMove, c.gently(whyHot(&c.in, h), to), best.piece, int(h), int(to), best.benefit, p.width(), p.share())
	case KindReplicate:
		c.add(best.piece, to)
		c.say(KindReplicate, c.gently(whyHot(&c.in, h), to), best.piece, int(h), int(to), best.benefit, p.width(), p.share())
	case KindRemove:
		c.remove(best.piece, h)
		c.say(KindRemove, whyHot(&c.in, h), best.piece, int(h), -1, best.benefit, 0, 0)
	}
	c.refresh(h, to)
	c.refresh(c.owners(p)...)
	return true
}

// loadCost is what it costs to move all of the load, beside what moving all of the keyspace
// does. Slices of one key cost next to nothing otherwise, and so one that carries far more
// than is too much would go as gladly as one that carries just that. Replicas cost only
// keys: they can be taken away again at no cost.
const loadCost = .03

const (
	// unevenness is half of the variance of what a key carries while its replicas stay where
	// they are, as a share of its squared load: half, as a task at the level is above it half
	// of the time. So a load is taken to become more or less by three quarters.
	unevenness = .3
	// leastOfBenefit is the share of the benefit of a replica fewer that counts at least.
	leastOfBenefit = .001
)

// evenness is how much less squared overload is to be expected with so many owners of piece p
// than with those that it has; below 0 if more. Each of r owners carries 1/r² of the variance
// of a key's load, and all together 1/r of it. A replica that is taken away although it will be
// wanted again costs its load then.
func evenness(p *piece, owners int, level float64) float64 {
	x := p.load / level
	return unevenness * x * x * (1/float64(p.replicas()) - 1/float64(owners))
}

// bestMove weighs the moves of each slice of task h.
func (c *rebalancer) bestMove(h uint32) (best option, to uint32) {
	coldest := c.cold.warm.top()
	before := c.over(h, c.load[h])
	most := 0.0 // the largest weight
	for _, i := range c.movable(h) {
		p := &c.pieces[i]
		width := p.width()
		dest, ok := coldest, coldest != h
		if p.replicas() > 1 && c.has(p, dest) || !c.holds(p, dest) { // a single owner is h
			dest, ok = c.cold.warm.first(func(t uint32) bool { return c.holds(p, t) && !c.has(p, t) })
		}
		dest, ok = c.cold.orYoung(dest, ok, p.share(), func(t uint32) bool { return c.holds(p, t) && !c.has(p, t) })
		consider := func(k Kind, owners int, benefit, cost float64) {
			if benefit <= 1e-9+1e-6*before {
				return
			}
			w := max(benefit+evenness(p, owners, c.level), leastOfBenefit*benefit) / cost
			if w > most || w == most && p.start < c.pieces[best.piece].start {
				best, to, most = option{k, i, benefit, cost}, dest, w
			}
		}
		s := p.share()
		if ok {
			consider(KindMove, p.replicas(), before-c.over(h, c.load[h]-s)+c.over(dest, c.load[dest])-c.over(dest, c.load[dest]+s), width+loadCost*s/c.total)
			if p.replicas() < c.max && c.roomFor(1) {
				consider(KindReplicate, p.replicas()+1, c.gainOfAdding(p, dest), width)
			}
		}
		if p.replicas() > c.min && !c.leftFull(p, h) {
			consider(KindRemove, p.replicas()-1, c.gainOfRemoving(p, h), width)
		}
	}
	return best, to
}

// holds says that task t could carry its part of piece p if that had as many replicas
// as are allowed, or that no larger ones could do better. On a task that cannot, a
// slice would be in the way of those that can, for good: it may be too hot to be given
// to them in one step.
func (c *rebalancer) holds(p *piece, t uint32) bool {
	room := float64(c.max) * c.weight[t]
	return p.load <= room*c.level || room >= (1-1e-9)*c.widest
}

// movable are the pieces of task h that may move and fit into the budget. Looking
// for them fetches all from memory at once, before each is thought about.
func (c *rebalancer) movable(h uint32) []int32 {
	room := c.budget - c.moved
	c.found = c.found[:0]
	for _, i := range c.own[h] {
		p := &c.pieces[i]
		if p.fixed || p.load <= 0 || c.thin(i) {
			continue
		}
		if p.width() > room {
			c.spent = true
			continue
		}
		c.found = append(c.found, i)
	}
	return c.found
}

// thin says that piece i carries next to nothing for its width. Where the load is
// on few keys, most of the keyspace is like that: to move it would spend the
// budget round after round, and cool no task.
func (b *placement) thin(i int32) bool {
	p := &b.pieces[i]
	return p.load < sparse*p.width()*b.total
}

// sparse is the load of next to nothing, as a share of what the piece would carry
// if all keys were alike.
const sparse = .1

// gainOfAdding is the fall of squared overload when t joins the owners of p.
func (c *rebalancer) gainOfAdding(p *piece, t uint32) float64 {
	s, after := p.share(), p.load/float64(p.replicas()+1)
	g := c.over(t, c.load[t]) - c.over(t, c.load[t]+after)
	for _, o := range c.owners(p) {
		g += c.over(o, c.load[o]) - c.over(o, c.load[o]-s+after)
	}
	return g
}

// leftFull reports whether an owner of p other than h is full already.
func (c *rebalancer) leftFull(p *piece, h uint32) bool {
	return len(c.abilities.full) > 0 && slices.ContainsFunc(c.owners(p), func(t uint32) bool { return t != h && c.abilities.isFull(t) })
}

// gainOfRemoving is the fall of squared overload when t leaves the owners of p.
func (c *rebalancer) gainOfRemoving(p *piece, t uint32) float64 {
	s, after := p.share(), p.load/float64(p.replicas()-1)
	g := c.over(t, c.load[t]) - c.over(t, c.load[t]-s)
	for _, o := range c.owners(p) {
		if o != t {
			g += c.over(o, c.load[o]) - c.over(o, c.load[o]-s+after)
		}
	}
	return g
}
