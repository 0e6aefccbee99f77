package loadbalance

import "slices"

// mergeCold is phase 3: adjacent cold slices become one, coldest pair first, so
// that there is room to split hot ones. It goes on while there are more than
// the smallest number of slices a task, for pairs that together stay below the
// mean slice and do not lift a task above the hottest, until the budget of
// keyspace that may change hands is spent.
//
// The paper's smallest number is cfg.MinSlicesPerTask a task.
func (b *placement) mergeCold(least int) {
	if b.n <= least {
		return
	}
	limit := 0.0
	for _, t := range b.live {
		limit = max(limit, b.ratio(t))
	}
	h := make(pieceHeap, 0, b.n)
	for i := b.head; i >= 0 && b.pieces[i].next >= 0; i = b.pieces[i].next {
		if k, ok := b.pair(i); ok {
			h = append(h, k)
		}
	}
	h.init()
	for len(h) > 0 && b.n > least {
		k := h.pop()
		p := &b.pieces[k.id]
		if p.gone || p.version != k.version || p.next < 0 {
			continue
		}
		if now, ok := b.pair(k.id); !ok || now.key != k.key {
			if ok { // the neighbour has changed
				h.push(now)
			}
			continue
		}
		if !b.mergePair(k.id, limit) {
			continue
		}
		if k, ok := b.pair(k.id); ok {
			h.push(k)
		}
		if l := b.pieces[k.id].prev; l >= 0 {
			if k, ok := b.pair(l); ok {
				h.push(k)
			}
		}
	}
}

// mergeSame joins cold neighbours that lie on the same tasks, which moves nothing.
func (b *placement) mergeSame() {
	least := b.cfg.MinSlicesPerTask * len(b.live)
	for i := b.head; i >= 0 && b.pieces[i].next >= 0 && b.n > least; {
		if !b.mergeable(i) {
			i = b.pieces[i].next
			continue
		}
		b.merge(i, i)
		b.say(KindMerge, ReasonSameTasks, i, -1, -1, 1, 0, 0)
	}
}

// mergeable reports whether piece i and the next are cold and on the same tasks.
func (b *placement) mergeable(i int32) bool {
	p := &b.pieces[i]
	if p.next < 0 {
		return false
	}
	q := &b.pieces[p.next]
	return !p.fixed && !q.fixed && (b.peak(i)+b.peak(p.next))*float64(b.n) < b.total && sameOwners(b.owners(p), b.owners(q))
}

// pair is the entry of a piece and its right neighbour; ok is false when they
// are not cold enough. The mean slice only grows while slices are merged.
func (b *placement) pair(i int32) (pieceKey, bool) {
	p := &b.pieces[i]
	if p.next < 0 {
		return pieceKey{}, false
	}
	cold := p.load+b.pieces[p.next].load < b.total/float64(b.n) && !p.fixed && !b.pieces[p.next].fixed
	return pieceKey{b.peak(i) + b.peak(p.next), i, p.version}, cold
}

// mergePair merges piece i with its right neighbour under the owners of
// whichever is cheaper to keep and allowed.
func (b *placement) mergePair(i int32, limit float64) bool {
	l, r := &b.pieces[i], &b.pieces[b.pieces[i].next]
	if sameOwners(b.owners(l), b.owners(r)) {
		b.merge(i, i)
		b.say(KindMerge, ReasonSameTasks, i, -1, -1, 1, 0, 0)
		return true
	}
	keep, lose := i, l.next
	if l.width() < r.width() {
		keep, lose = lose, keep
	}
	for range 2 {
		if cost, load, ok := b.mergeCost(keep, lose, limit); ok {
			b.merged += cost
			b.sayMoved(keep, lose, cost, load)
			b.merge(i, keep)
			b.say(KindMerge, ReasonCold, i, -1, -1, 1, 0, 0)
			return true
		}
		keep, lose = lose, keep
	}
	return false
}

// sayMoved notes which tasks are given piece lose, and in place of which, when it goes to
// the owners of keep. It is one stretch of keys that moves: the first bears its cost.
func (b *placement) sayMoved(keep, lose int32, keys, load float64) {
	k, l := &b.pieces[keep], &b.pieces[lose]
	without := func(p, q *piece) []uint32 {
		return slices.DeleteFunc(slices.Clone(b.owners(p)), func(t uint32) bool { return b.has(q, t) })
	}
	gain, leave := without(k, l), without(l, k)
	for n, t := range gain {
		kind, from := KindReplicate, -1
		if n < len(leave) {
			kind, from = KindMove, int(leave[n])
		}
		b.say(kind, ReasonCold, lose, from, int(t), l.width(), keys, load/float64(len(gain)))
		keys = 0
	}
	for n := len(gain); n < len(leave); n++ {
		b.say(KindRemove, ReasonCold, lose, int(leave[n]), -1, 1, 0, 0)
	}
}

// mergeCost is the keyspace and the load that change hands when one piece moves
// to the owners of another; ok is false when that is not allowed.
func (b *placement) mergeCost(keep, lose int32, limit float64) (keys, load float64, ok bool) {
	k, l := &b.pieces[keep], &b.pieces[lose]
	gained := 0
	share := (k.load + l.load) / float64(k.replicas())
	for _, t := range b.owners(k) {
		after := b.load[t] - k.share() + share
		if b.has(l, t) {
			after -= l.share()
		} else {
			gained++
		}
		if after/b.weight[t] > limit {
			return 0, 0, false
		}
	}
	if gained > 0 {
		keys = l.width()
		load = l.load * float64(gained) / float64(k.replicas())
	}
	return keys, load, b.merged+keys <= b.mergeBudget()
}

func sameOwners(a, b []uint32) bool {
	if len(a) != len(b) {
		return false
	}
	for _, t := range a {
		if !slices.Contains(b, t) {
			return false
		}
	}
	return true
}
