package loadbalance

import "github.com/slicer-project/slicer/assignment"

// splitHot is phase 5: slices at least twice as hot as the mean one are split
// in the middle, hottest first, without changing owners, up to the largest
// number of slices a task. The next round sees the parts measured apart and can
// move them apart.
func (b *placement) splitHot() {
	limit := b.maxSlices()
	if b.n >= limit {
		return
	}
	var rest []pieceKey
	for i := b.head; i >= 0; i = b.pieces[i].next {
		if b.splittable(i, limit) {
			rest = append(rest, pieceKey{-b.pieces[i].load, i, 0})
		}
	}
	// Most are split once and their parts are not: those few go through the heap. Whole are
	// those that are hot enough by the time that there are upTo slices: as there are seldom
	// many more than before, only these are sorted.
	var whole []pieceKey
	var parts pieceHeap
	for upTo := 0; b.n < limit; {
		if len(whole) == 0 && b.n > upTo {
			upTo = min(b.n+b.n/16, limit)
			whole, rest = sortedOut(rest, func(k pieceKey) bool { return -k.key*float64(upTo) >= tooHot*b.total })
		}
		var i int32
		switch {
		case len(whole)+len(parts) == 0:
			return
		case len(parts) == 0 || len(whole) > 0 && whole[0].compare(parts[0]) < 0:
			i, whole = whole[0].id, whole[1:]
		default:
			i = parts.pop().id
		}
		p := &b.pieces[i]
		if p.load*float64(b.n) < tooHot*b.total || p.load <= 0 {
			return
		}
		if !b.roomFor(p.replicas()) {
			continue
		}
		b.say(KindSplit, ReasonHotSlice, i, -1, -1, p.load*float64(b.n)/b.total, 0, 0)
		j := b.split(i, p.start+(p.end-p.start)/2)
		for _, k := range [...]int32{i, j} {
			if b.splittable(k, limit) {
				parts.push(pieceKey{-b.pieces[k].load, k, 0})
			}
		}
	}
}

// splittable says that a piece may be split now or, because the mean slice
// gets colder while slices are split, later in the round.
func (b *placement) splittable(i int32, limit int) bool {
	p := &b.pieces[i]
	return p.end-p.start > 1 && !p.fixed && p.load > 0 && p.load*float64(limit) >= tooHot*b.total
}

// tooHot is how many times as hot as the mean slice one must be to be split.
const tooHot = 2

// maxSlices bounds how many slices there may be.
func (b *placement) maxSlices() int {
	return min(b.cfg.MaxSlicesPerTask*len(b.live), assignment.MaxSlices)
}
