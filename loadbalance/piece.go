package loadbalance

import (
	"math"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// piece is a slice while a round works on it. Pieces form a list in key order
// so that splitting and merging cost nothing but the piece itself.
type piece struct {
	start, end assignment.SliceKey
	load       float64 // of all replicas together; never NaN, negative or infinite
	owners     []uint32
	prev, next int32 // -1 at the ends
	version    uint32
	source     int32 // the slice of Prev that it is, or is part of; -1 if of several
	gone       bool  // merged into another
	fixed      bool  // stays as it is and where it is
}

func (p *piece) slice() assignment.Slice { return assignment.Slice{Start: p.start, End: p.end} }
func (p *piece) width() float64          { return p.slice().Fraction() }
func (p *piece) has(t uint32) bool       { return slices.Contains(p.owners, t) }

// share is the load that each owner carries.
func (p *piece) share() float64 { return p.load / float64(len(p.owners)) }

// split cuts piece i at a key strictly within it; both parts keep its owners.
// It returns the right part.
func (b *board) split(i int32, at assignment.SliceKey) int32 {
	known := int32(0)
	if b.fine != nil && b.fine.part != nil {
		known = 3
	}
	return b.splitAs(i, at, b.portion(i, at), known)
}

// splitAs is split when it is known which share of the load lies below at;
// known says as how many measurements, see estimate.
func (b *board) splitAs(i int32, at assignment.SliceKey, left float64, known int32) int32 {
	j := int32(len(b.pieces))
	b.pieces = append(b.pieces, piece{})
	l, r := &b.pieces[i], &b.pieces[j]
	*r = piece{start: at, end: l.end, load: l.load * (1 - left), owners: b.list(l.owners), prev: i, next: l.next, source: l.source, fixed: l.fixed}
	l.end, l.load, l.next = at, l.load*left, j
	l.version++
	if b.est != nil {
		b.est = append(b.est, b.est[i].part(1-left, known))
		b.est[i] = b.est[i].part(left, known)
	}
	if r.next >= 0 {
		b.pieces[r.next].prev = j
	}
	for _, t := range r.owners {
		b.own[t] = append(b.own[t], j)
	}
	b.n++
	b.owners += len(r.owners)
	return j
}

// list copies a list of owners.
func (b *board) list(owners []uint32) []uint32 {
	n := len(owners)
	if len(b.arena) < n {
		b.arena = make([]uint32, max(1<<12, n))
	}
	c := b.arena[:n:n]
	b.arena = b.arena[n:]
	copy(c, owners)
	return c
}

// portion is the share of the load of piece i that lies below key at.
func (b *board) portion(i int32, at assignment.SliceKey) float64 {
	p := &b.pieces[i]
	if p.source >= 0 && (b.fine == nil || b.fine.part == nil) {
		return float64(at-p.start) / float64(p.end-p.start)
	}
	return b.fine.portion(p.slice(), at)
}

// peak is the load that piece i had of late, at least what it has.
func (b *board) peak(i int32) float64 {
	if b.est == nil {
		return b.pieces[i].load
	}
	return max(b.pieces[i].load, b.est[i].peak)
}

// merge joins piece i and the one after it under the owners of keep, which is
// one of the two.
func (b *board) merge(i, keep int32) {
	j := b.pieces[i].next
	l, r := &b.pieces[i], &b.pieces[j]
	b.shed(l)
	b.shed(r)
	b.owners -= len(l.owners) + len(r.owners)
	lose := l
	if keep == i {
		lose = r
	}
	// Piece i stays on the board whichever owners stay.
	for _, t := range r.owners {
		b.disown(j, t)
	}
	if lose == l {
		for _, t := range l.owners {
			b.disown(i, t)
		}
		l.owners = r.owners
		for _, t := range l.owners {
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
	b.owners += len(l.owners)
	b.carry(l)
	r.gone, r.owners = true, nil
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
