package loadbalance

import (
	"slices"
)

// published runs phases 3 to 5 as the Slicer paper has them. Where the paper
// leaves a choice, this takes the plainest reading: the benefit of a move is
// the fall of the largest load among the tasks it touches, its cost the width
// of the slice, and a move that no longer fits into the budget is not made.
func (b *placement) published() {
	if _, some := b.fresh(); some {
		b.seedNewTasks()
	}
	b.mergeCold(b.cfg.MinSlicesPerTask * len(b.live))
	b.moveHottest()
	b.splitHot()
}

// option is a move that could be made.
type option struct {
	kind          Kind
	piece         int32
	benefit, cost float64
}

func (o *option) weight() float64 { return o.benefit / o.cost }

// moveHottest is phase 4: the move with the largest weight that affects the
// hottest task, again and again.
func (b *placement) moveHottest() {
	hot := newTaskHeap(len(b.load), b.live, func(t uint32) float64 { return -b.ratio(t) })
	cold := b.newTakers(b.mean(), func(t uint32) float64 { return b.load[t] })
	for {
		h := hot.top()
		best, c, spent := b.bestOption(h, cold)
		if best.kind == "" {
			why := ReasonStuck
			if spent {
				why = ReasonBudget
			}
			b.note(Decision{Kind: KindSkip, Reason: why, From: b.in.Tasks[h].Name, Benefit: b.ratio(h)/b.mean() - 1})
			return
		}
		touched := b.apply(best, h, c)
		for _, t := range touched {
			hot.set(t, -b.ratio(t))
			cold.refresh(t)
		}
	}
}

// bestOption weighs the three moves of each slice of the hottest task, to the
// coldest; spent says that one was left out because it did not fit into the budget.
func (b *placement) bestOption(h uint32, cold *takers) (best option, to uint32, spent bool) {
	before := b.ratio(h)
	coldest := cold.warm.top()
	for _, i := range b.own[h] {
		p := &b.pieces[i]
		if p.fixed {
			continue
		}
		width := p.width()
		c, _ := cold.orYoung(coldest, true, p.share(), func(t uint32) bool { return !b.has(p, t) })
		consider := func(k Kind, after float64) {
			o := option{k, i, (before - after) / b.mean(), width}
			if o.benefit <= 1e-9 {
				return
			}
			if b.moved+width > b.moveBudget() {
				spent = true
				return
			}
			if best.kind == "" || o.weight() > best.weight() ||
				o.weight() == best.weight() && p.start < b.pieces[best.piece].start {
				best, to = o, c
			}
		}
		if c != h && (p.replicas() == 1 || !b.has(p, c)) {
			consider(KindMove, max((b.load[h]-p.share())/b.weight[h], (b.load[c]+p.share())/b.weight[c]))
			if p.replicas() < b.max && b.roomFor(1) {
				consider(KindReplicate, b.afterAdd(p, c))
			}
		}
		if p.replicas() > b.min {
			consider(KindRemove, b.afterRemove(p, h))
		}
	}
	return best, to, spent
}

// afterAdd is the largest load among the owners of p once t has joined them.
func (b *placement) afterAdd(p *piece, t uint32) float64 {
	share := p.load / float64(p.replicas()+1)
	top := (b.load[t] + share) / b.weight[t]
	for _, o := range b.owners(p) {
		top = max(top, (b.load[o]-p.share()+share)/b.weight[o])
	}
	return top
}

// afterRemove is the largest load among the owners of p once t has left them.
func (b *placement) afterRemove(p *piece, t uint32) float64 {
	share := p.load / float64(p.replicas()-1)
	top := (b.load[t] - p.share()) / b.weight[t]
	for _, o := range b.owners(p) {
		if o != t {
			top = max(top, (b.load[o]-p.share()+share)/b.weight[o])
		}
	}
	return top
}

// apply makes a move and returns the tasks whose load it changed.
func (b *placement) apply(o option, h, c uint32) []uint32 {
	p := &b.pieces[o.piece]
	touched := append(slices.Clone(b.owners(p)), c)
	b.moved += o.cost
	switch o.kind {
	case KindMove:
		b.replace(o.piece, h, c)
		b.say(KindMove, b.gently(ReasonHotTask, c), o.piece, int(h), int(c), o.benefit, o.cost, p.share())
	case KindReplicate:
		b.add(o.piece, c)
		b.say(KindReplicate, b.gently(ReasonHotTask, c), o.piece, int(h), int(c), o.benefit, o.cost, p.share())
	case KindRemove:
		b.remove(o.piece, h)
		b.say(KindRemove, ReasonHotTask, o.piece, int(h), -1, o.benefit, 0, 0)
	}
	return touched
}

// roomFor keeps assignments within what they may hold: with n owners more of slices.
func (b *placement) roomFor(n int) bool { return b.ownerships+n <= b.most }
