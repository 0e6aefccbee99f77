package loadbalance

import (
	"math"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// piece is a slice while a round works on it. Pieces form a list in key order
// so that splitting and merging cost nothing but the piece itself. There may be a
// million, and a step looks at pieces all over the memory: they are small, and hold
// no pointers.
type piece struct {
	start, end assignment.SliceKey
	load       float64 // of all replicas together; never NaN, negative or infinite
	prev, next int32   // -1 at the ends
	version    uint32
	source     int32     // the slice of Prev that it is, or is part of; -1 if of several
	owner      [1]uint32 // the owner if there is one, or else where in placement.lists they begin
	count      uint16    // of owners
	gone       bool      // merged into another
	fixed      bool      // stays as it is and where it is
}

func (p *piece) slice() assignment.Slice { return assignment.Slice{Start: p.start, End: p.end} }
func (p *piece) width() float64          { return p.slice().Fraction() }

func (p *piece) replicas() int { return int(p.count) }

// share is the load that each owner carries.
func (p *piece) share() float64 { return p.load / float64(p.replicas()) }

// owners are the tasks that own a piece, valid until that changes.
func (b *placement) owners(p *piece) []uint32 {
	if p.count <= 1 {
		return p.owner[:p.count]
	}
	return b.lists[p.owner[0]:][:p.count]
}

func (b *placement) has(p *piece, t uint32) bool { return slices.Contains(b.owners(p), t) }

// join adds an owner to those of a piece.
func (b *placement) join(p *piece, t uint32) {
	owners := b.owners(p)
	p.count++
	if len(owners) == 0 {
		p.owner[0] = t
		return
	}
	at := len(b.lists) - len(owners)
	if len(owners) == 1 || int(p.owner[0]) != at { // the last list can grow where it is
		at = len(b.lists)
		b.lists = append(b.lists, owners...)
	}
	b.lists = append(b.lists, t)
	p.owner[0] = uint32(at)
}

// leave takes an owner of a piece away from it.
func (b *placement) leave(p *piece, t uint32) {
	left := slices.DeleteFunc(b.owners(p), func(o uint32) bool { return o == t })
	p.count = uint16(len(left))
	if len(left) == 1 {
		p.owner[0] = left[0]
	}
}

// split cuts piece i at a key strictly within it; both parts keep its owners.
// It returns the right part.
func (b *placement) split(i int32, at assignment.SliceKey) int32 {
	known := int32(0)
	if b.fine != nil && b.fine.part != nil {
		known = 3
	}
	return b.splitAs(i, at, b.portion(i, at), known)
}

// splitAs is split when it is known which share of the load lies below at;
// known says as how many measurements, see estimate.
func (b *placement) splitAs(i int32, at assignment.SliceKey, left float64, known int32) int32 {
	j := int32(len(b.pieces))
	b.pieces = append(b.pieces, piece{})
	l, r := &b.pieces[i], &b.pieces[j]
	*r = *l
	r.start, r.load, r.prev, r.version = at, l.load*(1-left), i, 0
	if r.count > 1 {
		r.owner[0] = uint32(len(b.lists))
		b.lists = append(b.lists, b.owners(l)...)
	}
	l.end, l.load, l.next = at, l.load*left, j
	l.version++
	if b.est != nil {
		b.est = append(b.est, b.est[i].part(1-left, known))
		b.est[i] = b.est[i].part(left, known)
	}
	if r.next >= 0 {
		b.pieces[r.next].prev = j
	}
	for _, t := range b.owners(r) {
		b.own[t] = append(b.own[t], j)
	}
	b.n++
	b.ownerships += r.replicas()
	return j
}

// portion is the share of the load of piece i that lies below key at.
func (b *placement) portion(i int32, at assignment.SliceKey) float64 {
	p := &b.pieces[i]
	if p.source >= 0 && (b.fine == nil || b.fine.part == nil) {
		return float64(at-p.start) / float64(p.end-p.start)
	}
	return b.fine.portion(p.slice(), at)
}

// peak is the load that piece i had of late, at least what it has.
func (b *placement) peak(i int32) float64 {
	if b.est == nil {
		return b.pieces[i].load
	}
	return max(b.pieces[i].load, b.est[i].peak)
}

// merge joins piece i and the one after it under the owners of keep, which is
// one of the two.
func (b *placement) merge(i, keep int32) {
	j := b.pieces[i].next
	l, r := &b.pieces[i], &b.pieces[j]
	b.shed(l)
	b.shed(r)
	b.ownerships -= l.replicas() + r.replicas()
	lose := l
	if keep == i {
		lose = r
	}
	// Piece i stays in the placement whichever owners stay.
	for _, t := range b.owners(r) {
		b.disown(j, t)
	}
	if lose == l {
		for _, t := range b.owners(l) {
			b.disown(i, t)
		}
		l.owner, l.count = r.owner, r.count
		for _, t := range b.owners(l) {
			b.own[t] = append(b.own[t], i)
		}
	}
	l.end, l.load, l.next = r.end, l.load+r.load, r.next
	if l.source != r.source {
		l.source = -1
	}
	if b.est != nil {
		b.est[i] = b.est[i].plus(b.est[j])
	}
	l.version++
	b.ownerships += l.replicas()
	b.carry(l)
	r.gone, r.count = true, 0
	r.version++
	if l.next >= 0 {
		b.pieces[l.next].prev = i
	}
	b.n--
}

// sane turns what is no load into none.
func sane(x float64) float64 {
	if !(x >= minLoad) || math.IsInf(x, 1) { // false for NaN
		return 0
	}
	return min(x, maxLoad)
}

// Loads beyond these are no rates of anything, and their squares lose meaning.
const minLoad, maxLoad = 1e-30, 1e18
