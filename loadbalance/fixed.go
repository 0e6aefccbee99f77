package loadbalance

import (
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// fix cuts the fixed ranges out and gives them to their tasks. It takes no heed of
// the budgets, which are for what the balancer wants: this is what an operator has
// ordered. A range that cannot be cut out for want of room for slices stays as it is.
func (b *placement) fix() {
	for _, f := range b.in.Fixed {
		t := slices.IndexFunc(b.in.Tasks, func(x assignment.Task) bool { return x.Name == f.Task })
		if t < 0 || b.weight[t] == 0 || f.Slice.Valid() != nil {
			continue
		}
		for _, at := range [...]assignment.SliceKey{f.Slice.Start, f.Slice.End} {
			if i := b.at(at); i >= 0 && b.pieces[i].start != at && b.n < assignment.MaxSlices &&
				b.roomFor(b.pieces[i].replicas()) {
				b.say(KindSplit, ReasonPinned, i, -1, -1, 1, 0, 0)
				b.split(i, at)
			}
		}
		i := b.at(f.Slice.Start)
		if b.pieces[i].start != f.Slice.Start {
			continue
		}
		for ; i >= 0 && b.pieces[i].end <= f.Slice.End; i = b.pieces[i].next {
			b.pin(i, uint32(t))
		}
	}
}

// at finds the piece that holds a key, -1 for the end of the keyspace. Nothing may
// have been merged yet.
func (b *placement) at(k assignment.SliceKey) int32 {
	if k >= assignment.KeyspaceEnd {
		return -1
	}
	first := b.head
	if b.in.Prev != nil {
		first = int32(b.in.Prev.Find(k)) // or what it was cut into
	}
	for i := first; i >= 0; i = b.pieces[i].next {
		if k < b.pieces[i].end {
			return i
		}
	}
	return -1
}

// pin makes t the only owner of piece i, and keeps it so.
func (b *placement) pin(i int32, t uint32) {
	p := &b.pieces[i]
	p.fixed = true
	from := -1
	if !b.has(p, t) {
		if p.replicas() > 0 {
			from = int(b.owners(p)[0])
		}
		b.add(i, t)
		b.say(KindMove, ReasonPinned, i, from, int(t), p.width(), p.width(), p.load)
	}
	for _, o := range slices.Clone(b.owners(p)) {
		if o == t {
			continue
		}
		b.remove(i, o)
		if int(o) != from { // the move has said so
			b.say(KindRemove, ReasonPinned, i, int(o), -1, 1, 0, 0)
		}
	}
}
