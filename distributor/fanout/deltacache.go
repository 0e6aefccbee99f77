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

// DeltaCache holds a job's newest assignment and a few before it, and what they are
// encoded as: one encoding for each base that a subscriber is on.
type DeltaCache struct {
	Items []*item // oldest first
	// Encode makes the messages that lead from a base, nil for none, to an assignment.
	Encode func(base, a *assignment.Assignment) *prepared.Messages
}

type item struct {
	a       *assignment.Assignment
	written time.Time // when it was stored, zero if that is not known
	whole   *prepared.Messages
	// deltas lead from the base of that generation to a; only the newest has any.
	deltas map[assignment.Generation]*prepared.Messages
}

// Newest is nil when there is none.
func (s *DeltaCache) Newest() *assignment.Assignment {
	if len(s.Items) == 0 {
		return nil
	}
	return s.Items[len(s.Items)-1].a
}

// Find returns the assignment of a generation if it is still held.
func (s *DeltaCache) Find(g assignment.Generation) *assignment.Assignment {
	if it := s.item(g); it != nil {
		return it.a
	}
	return nil
}

func (s *DeltaCache) item(g assignment.Generation) *item {
	for _, it := range s.Items {
		if it.a.Generation() == g {
			return it
		}
	}
	return nil
}

// Put makes a, stored at a time, the newest. What is of another store makes way.
func (s *DeltaCache) Put(a *assignment.Assignment, written time.Time) {
	if old := s.Newest(); old != nil && old.StoreID() != a.StoreID() {
		s.Items = nil
	}
	for _, it := range s.Items {
		it.whole, it.deltas = nil, nil
	}
	s.Items = append(s.Items, &item{a: a, written: written})
	total := 0
	for i := len(s.Items) - 2; i >= 0; i-- {
		total += s.Items[i].a.NumSlices()
		// The one before the newest is what nearly everybody is on.
		if held := len(s.Items) - i; held > MaxHeld || held > 2 && total > maxHeldSlices {
			s.Items = append([]*item(nil), s.Items[i+1:]...)
			break
		}
	}
}

// Insert adds an older assignment of the newest's store for deltas to stand on.
func (s *DeltaCache) Insert(a *assignment.Assignment) {
	total := a.NumSlices()
	for _, it := range s.Items[:max(len(s.Items)-1, 0)] {
		total += it.a.NumSlices()
	}
	switch {
	case len(s.Items) == 0 || s.Find(a.Generation()) != nil:
		return
	case len(s.Items) > 1 && (len(s.Items) >= MaxHeld || total > maxHeldSlices):
		s.Items = s.Items[1:]
	}
	at := 0
	for at < len(s.Items)-1 && s.Items[at].a.Generation() < a.Generation() {
		at++
	}
	s.Items = slices.Insert(s.Items, at, &item{a: a})
}

// Written is when an assignment was stored, zero if that is not known or it is not held.
func (s *DeltaCache) Written(g assignment.Generation) time.Time {
	if it := s.item(g); it != nil {
		return it.written
	}
	return time.Time{}
}

func (s *DeltaCache) Clear() { s.Items = nil }

// Whole is the encoding of a held generation, nil if it is not held.
func (s *DeltaCache) Whole(g assignment.Generation) *prepared.Messages {
	it := s.item(g)
	if it == nil {
		return nil
	}
	if it.whole == nil {
		it.whole = s.Encode(nil, it.a)
	}
	return it.whole
}

// Delta is the encoding of what leads from a base to the newest, nil if the base
// is not held or is not what the checksum says.
func (s *DeltaCache) Delta(g assignment.Generation, sum uint64) *prepared.Messages {
	base := s.Find(g)
	if base == nil || base.Checksum() != sum {
		return nil
	}
	it := s.Items[len(s.Items)-1]
	if oneDelta && len(s.Items) > 1 {
		base = s.Items[len(s.Items)-2].a
		g = base.Generation()
	}
	p := it.deltas[g]
	if p == nil {
		if it.deltas == nil {
			it.deltas = make(map[assignment.Generation]*prepared.Messages)
		}
		p = s.Encode(base, it.a)
		it.deltas[g] = p
	}
	return p
}
