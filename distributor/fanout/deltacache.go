package fanout

import (
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
)

const (
	// MaxHeld is the most assignments held of one job: the newest and the bases
	// that subscribers may still be on.
	MaxHeld = 6
	// maxHeldSlices bounds the slices of all bases together, so that the bases of
	// a giant job do not take several times its memory: some 30 bytes each.
	maxHeldSlices = 1 << 20
)

// deltaCache holds a job's newest assignment and a few before it, and what they are
// encoded as: one encoding for each base that a subscriber is on.
type deltaCache struct {
	items []*item // oldest first
	// encode makes the messages that lead from a base, nil for none, to an assignment.
	encode func(base, a *assignment.Assignment, compressed bool) *prepared.Messages
}

type item struct {
	a       *assignment.Assignment
	written time.Time             // when it was stored, zero if that is not known
	wholes  [2]*prepared.Messages // as it is, and compressed
	// deltas lead from the base of that generation to a; only the newest has any.
	deltas map[assignment.Generation]*prepared.Messages
	cut    *assignment.Cut // nil until a part is asked for
}

// parts are those of the assignment.
func (it *item) parts() *assignment.Cut {
	if it.cut == nil {
		it.cut = assignment.NewCut(it.a)
	}
	return it.cut
}

// newest is nil when there is none.
func (s *deltaCache) newest() *assignment.Assignment {
	if len(s.items) == 0 {
		return nil
	}
	return s.items[len(s.items)-1].a
}

// find returns the assignment of a generation if it is still held.
func (s *deltaCache) find(g assignment.Generation) *assignment.Assignment {
	if it := s.item(g); it != nil {
		return it.a
	}
	return nil
}

func (s *deltaCache) item(g assignment.Generation) *item {
	for _, it := range s.items {
		if it.a.Generation() == g {
			return it
		}
	}
	return nil
}

// put makes a, stored at a time, the newest. What is of another store makes way.
func (s *deltaCache) put(a *assignment.Assignment, written time.Time) {
	if old := s.newest(); old != nil && old.StoreID() != a.StoreID() {
		s.items = nil
	}
	for _, it := range s.items {
		it.wholes, it.deltas = [2]*prepared.Messages{}, nil
	}
	s.items = append(s.items, &item{a: a, written: written})
	total := 0
	for i := len(s.items) - 2; i >= 0; i-- {
		total += s.items[i].a.NumSlices()
		// Nearly all subscribers hold the one before the newest.
		if held := len(s.items) - i; held > MaxHeld || held > 2 && total > maxHeldSlices {
			s.items = append([]*item(nil), s.items[i+1:]...)
			break
		}
	}
}

// insert adds an older assignment of the newest's store for deltas to stand on.
func (s *deltaCache) insert(a *assignment.Assignment) {
	total := a.NumSlices()
	for _, it := range s.items[:max(len(s.items)-1, 0)] {
		total += it.a.NumSlices()
	}
	switch {
	case len(s.items) == 0 || s.find(a.Generation()) != nil:
		return
	case len(s.items) > 1 && (len(s.items) >= MaxHeld || total > maxHeldSlices):
		s.items = s.items[1:]
	}
	at := 0
	for at < len(s.items)-1 && s.items[at].a.Generation() < a.Generation() {
		at++
	}
	s.items = slices.Insert(s.items, at, &item{a: a})
}

// written is when an assignment was stored, zero if that is not known or it is not held.
func (s *deltaCache) written(g assignment.Generation) time.Time {
	if it := s.item(g); it != nil {
		return it.written
	}
	return time.Time{}
}

func (s *deltaCache) clear() { s.items = nil }

// whole is the encoding of a held generation, nil if it is not held. It is compressed once,
// by the first that sends it so.
func (s *deltaCache) whole(g assignment.Generation, compressed bool) *prepared.Messages {
	it := s.item(g)
	if it == nil {
		return nil
	}
	p := &it.wholes[0]
	if compressed {
		p = &it.wholes[1]
	}
	if *p == nil {
		*p = s.encode(nil, it.a, compressed)
	}
	return *p
}

// delta is the encoding of what leads from a base to the newest, nil if the base
// is not held or is not what the checksum says.
func (s *deltaCache) delta(g assignment.Generation, sum uint64) *prepared.Messages {
	base := s.find(g)
	if base == nil || base.Checksum() != sum {
		return nil
	}
	it := s.items[len(s.items)-1]
	if oneDelta && len(s.items) > 1 {
		base = s.items[len(s.items)-2].a
		g = base.Generation()
	}
	p := it.deltas[g]
	if p == nil {
		if it.deltas == nil {
			it.deltas = make(map[assignment.Generation]*prepared.Messages)
		}
		p = s.encode(base, it.a, false)
		it.deltas[g] = p
	}
	return p
}
