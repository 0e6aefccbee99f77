package loadbalance

import "github.com/slicer-project/slicer/assignment"

// cooler is phase 4 of weighted-move.
type cooler struct {
	*board
	level     float64 // what tasks should be brought down to, load by capacity
	hot, cold *taskHeap
	spent     bool // a move was left out because it did not fit into the budget
}

// Cooling goes over the tasks, hottest first. A task that nothing can cool is
// set aside and the next one looked at, so that one unlucky task does not leave
// the others uneven.
func (b *board) cool() {
	c := &cooler{board: b, level: b.aim()}
	c.hot = newTaskHeap(len(b.load), b.live, func(t uint32) float64 { return -b.ratio(t) })
	c.cold = newTaskHeap(len(b.load), b.live, b.ratio)
	stop := b.cfg.BandStop * c.level
	start := b.cfg.BandStart * c.level
	acting := false
	for c.hot.len() > 0 {
		h := c.hot.top()
		if x := b.ratio(h); x <= stop || !acting && x <= start {
			break
		}
		if b.ratio(h) <= start && !acting {
			break
		}
		if c.step(h) {
			acting = true
			continue
		}
		c.hot.drop(h)
		why := ReasonStuck
		if c.spent {
			why = ReasonBudget
		}
		b.decisions = append(b.decisions, Decision{Kind: KindSkip, Reason: why, From: b.in.Tasks[h].Name})
	}
}

// over is the squared overload of a task with some load.
func (c *cooler) over(t uint32, load float64) float64 {
	x := load/c.weight[t] - c.level
	if x <= 0 {
		return 0
	}
	x /= c.level
	return x * x * c.weight[t]
}

func (c *cooler) refresh(ts ...uint32) {
	for _, t := range ts {
		c.hot.set(t, -c.ratio(t))
		c.cold.set(t, c.ratio(t))
	}
}

// step makes the best move that cools task h; false if there is none.
func (c *cooler) step(h uint32) bool {
	c.spent = false
	best, to := c.bestMove(h)
	if best.kind == "" {
		return c.eject(h)
	}
	p := &c.pieces[best.piece]
	touched := append(append([]uint32(nil), p.owners...), h)
	c.moved += best.cost
	switch best.kind {
	case KindMove:
		c.replace(best.piece, h, to)
		c.say(KindMove, ReasonHotTask, best.piece, int(h), int(to), best.weight(), p.width(), p.share())
	case KindReplicate:
		c.add(best.piece, to)
		c.say(KindReplicate, ReasonHotTask, best.piece, int(h), int(to), best.weight(), p.width(), p.share())
	case KindRemove:
		c.remove(best.piece, h)
		c.say(KindRemove, ReasonHotTask, best.piece, int(h), -1, best.weight(), 0, 0)
	}
	c.refresh(append(touched, to)...)
	return true
}

// bestMove weighs the moves of each slice of task h.
func (c *cooler) bestMove(h uint32) (best option, to uint32) {
	coldest := c.cold.top()
	room := c.moveBudget() - c.moved
	before := c.over(h, c.load[h])
	for _, i := range c.own[h] {
		p := &c.pieces[i]
		if p.load <= 0 {
			continue
		}
		width := p.width()
		if width > room {
			c.spent = true
			continue
		}
		dest, ok := coldest, true
		if p.has(dest) {
			dest, ok = c.cold.first(func(t uint32) bool { return !p.has(t) })
		}
		consider := func(k Kind, benefit float64) {
			o := option{k, i, benefit, width}
			if benefit <= 1e-9+1e-6*before {
				return
			}
			if best.kind == "" || o.weight() > best.weight() ||
				o.weight() == best.weight() && p.start < c.pieces[best.piece].start {
				best, to = o, dest
			}
		}
		s := p.share()
		if ok {
			consider(KindMove, before-c.over(h, c.load[h]-s)+c.over(dest, c.load[dest])-c.over(dest, c.load[dest]+s))
			if len(p.owners) < c.max && c.owners < assignment.MaxOwnerships {
				consider(KindReplicate, c.gainOfAdding(p, dest))
			}
		}
		if len(p.owners) > c.min {
			consider(KindRemove, c.gainOfRemoving(p, h))
		}
	}
	return best, to
}

// gainOfAdding is the fall of squared overload when t joins the owners of p.
func (c *cooler) gainOfAdding(p *piece, t uint32) float64 {
	s, after := p.share(), p.load/float64(len(p.owners)+1)
	g := c.over(t, c.load[t]) - c.over(t, c.load[t]+after)
	for _, o := range p.owners {
		g += c.over(o, c.load[o]) - c.over(o, c.load[o]-s+after)
	}
	return g
}

// gainOfRemoving is the fall of squared overload when t leaves the owners of p.
func (c *cooler) gainOfRemoving(p *piece, t uint32) float64 {
	s, after := p.share(), p.load/float64(len(p.owners)-1)
	g := c.over(t, c.load[t]) - c.over(t, c.load[t]-s)
	for _, o := range p.owners {
		if o != t {
			g += c.over(o, c.load[o]) - c.over(o, c.load[o]-s+after)
		}
	}
	return g
}
