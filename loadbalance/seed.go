package loadbalance

import (
	"math"
	"slices"
)

// poorest is the part of its share of the keyspace below which a task is given more while
// no load is known.
const poorest = .5

// seedNewTasks gives tasks that own nothing their fair share, and those that are new
// what they lack as they warm up, as far as the move budget allows: moving by load
// alone would leave a newcomer to a large, even job with nothing, because none
// there is hot. When no load is known it also goes on filling tasks that own less
// than half their share of the keyspace. What does not fit into the budget follows
// in later rounds; there is no budget while no load is known and most tasks are new,
// as their keys cost none of them anything yet.
func (b *placement) seedNewTasks() {
	var guests []uint32
	within, few := b.fresh()
	fresh := func(t uint32) bool { return few && isNew(b.in.Ages, int(t), within) }
	for _, t := range b.live {
		if len(b.own[t]) == 0 || fresh(t) {
			guests = append(guests, t)
		}
	}
	if len(guests) == 0 && b.total > 0 {
		return
	}
	s := b.newScale()
	sum := 0.0
	for _, t := range b.live {
		sum += s.worth[t]
	}
	fair := sum / float64(len(b.live))
	if few && b.total > 0 {
		fair *= b.aim() / b.mean() // tasks that nothing can cool are no reason to leave the others without
	}
	if b.total <= 0 {
		guests = guests[:0]
		for _, t := range b.live {
			if s.ratio(t) < poorest*fair || fresh(t) {
				guests = append(guests, t)
			}
		}
	}
	guests = slices.DeleteFunc(guests, func(t uint32) bool { return len(b.own[t]) > 0 && s.ratio(t) >= enough*fair })
	if len(guests) == 0 {
		return
	}
	g := seeding{b: b, s: s, fair: fair, budget: b.moveBudget(), few: few,
		slices: min(b.cfg.MinSlicesPerTask*len(b.live), b.maxSlices())}
	g.halveWide()
	if b.total <= 0 && g.budget > 0 && mostNew(b.in.Tasks, b.in.Ages, within) {
		g.budget = 1
	}
	hot := newTaskHeap(len(b.load), b.live, func(t uint32) float64 { return -s.ratio(t) })
	cold := newTaskHeap(len(b.load), guests, s.ratio)
	for cold.len() > 0 && hot.len() > 0 {
		to, from := cold.top(), hot.top()
		if s.ratio(to) >= fair || s.ratio(from) <= fair {
			return
		}
		i, full := g.transfer(from, to)
		if i < 0 {
			switch {
			case full:
				cold.drop(to)
			case len(b.own[to]) == 0 && g.halveOnly(from):
			default:
				hot.drop(from)
			}
			continue
		}
		p := &b.pieces[i]
		s.change(i, func() { b.replace(i, from, to) })
		b.moved += p.width()
		b.say(KindMove, b.gently(ReasonNewTask, to), i, int(from), int(to), b.ofLoad(p), p.width(), p.share())
		hot.set(from, -s.ratio(from))
		hot.set(to, -s.ratio(to))
		cold.set(to, s.ratio(to))
	}
}

// seeding is what new tasks are given their slices by.
type seeding struct {
	b            *placement
	s            *scale
	fair, budget float64
	few          bool // some tasks are new, but no more than half
	slices       int  // as many as a first assignment would have
}

// halveWide splits slices that are wider than the whole move budget, which could never
// move, until they are not or there are as many as a first assignment would have: a job
// that began with few tasks has few slices, and tasks that come later would stay without.
func (g *seeding) halveWide() {
	b := g.b
	for again := true; again; {
		again = false
		for i := b.head; i >= 0; i = b.pieces[i].next {
			if b.pieces[i].width() > g.budget {
				if second, ok := g.halve(i); ok {
					i, again = second, true
				}
			}
		}
	}
}

// halveOnly splits the only slice of a task, of which it keeps one half, and reports whether
// it did.
func (g *seeding) halveOnly(from uint32) bool {
	own := g.b.own[from]
	if len(own) != 1 {
		return false
	}
	_, ok := g.halve(own[0])
	return ok
}

// halve splits slice i, unless it cannot, none may move or there are enough slices, and
// returns the second half and whether there is one.
func (g *seeding) halve(i int32) (second int32, ok bool) {
	p := &g.b.pieces[i]
	if g.budget <= 0 || g.b.n >= g.slices || p.fixed || p.end-p.start <= 1 || !g.b.roomFor(p.replicas()) {
		return i, false
	}
	g.b.say(KindSplit, ReasonNewTask, i, -1, -1, 1, 0, 0)
	return g.b.split(i, p.start+(p.end-p.start)/2), true
}

// transfer picks the piece of one task that another should have: the most worth for its
// width that leaves neither on the wrong side of fair by more than half of it, or, to a
// task that nothing else would give to, does not leave it with more than the one that gives
// has then: among few slices none may have too much. None gives all that it has. It returns
// -1 if there is none, and whether that is because the task warms up and has enough for now.
// If that has nothing it is given the least if nothing is little enough: with nothing it
// would stay cold.
func (g *seeding) transfer(from, to uint32) (i int32, full bool) {
	b, s, fair := g.b, g.s, g.fair
	if len(b.own[from]) == 1 {
		return -1, false
	}
	best, bestRate := int32(-1), 0.0
	least, leastWorth, share := int32(-1), 0.0, fair*b.capacity[to]
	if b.warms(to) && len(b.own[to]) == 0 {
		leastWorth = math.Inf(1)
	}
	poor := len(b.own[to]) == 0 || b.total <= 0 && s.ratio(to) < poorest*fair
	for _, i := range b.own[from] {
		p := &b.pieces[i]
		w := b.worth(p) / float64(p.replicas())
		width := p.width()
		evens := poor && (s.worth[from]-w)/b.capacity[from] >= (s.worth[to]+w)/b.capacity[to]
		if p.fixed || b.has(p, to) || b.moved+width > g.budget || g.few && b.total > 0 && b.thin(i) {
			continue
		}
		if w < leastWorth && (evens || w < share && s.worth[from]-w/2 >= fair*b.capacity[from]) {
			least, leastWorth = i, w
		}
		switch {
		case s.worth[from]-w/2 < fair*b.weight[from] && !evens:
		case !b.admits(to, s.worth[to], w, fair):
			full = full || b.admits(to, 0, w, fair)
		case s.worth[to]+w/2 > fair*b.weight[to] && !evens:
		case best < 0 || w/width > bestRate || w/width == bestRate && p.start < b.pieces[best].start:
			best, bestRate = i, w/width
		}
	}
	if best < 0 {
		best = least
	}
	return best, full
}

func (b *placement) moveBudget() float64  { return max(b.cfg.MoveBudget, 0) }
func (b *placement) mergeBudget() float64 { return max(b.cfg.MergeBudget, 0) }
