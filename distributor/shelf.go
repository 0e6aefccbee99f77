package distributor

import (
	"slices"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
)

const (
	// maxHeld is the most assignments held of one job: the newest and the bases
	// that subscribers may still be on.
	maxHeld = 6
	// maxHeldSlices bounds the slices of all bases together, so that the bases of
	// a giant job do not take several times its memory: some 30 bytes each.
	maxHeldSlices = 1 << 20
)

// shelf holds a job's newest assignment and a few before it, and what they are
// encoded as: one encoding for each base that somebody is on. Guarded by its
// job's lock; payloads are safe to be sent outside it.
type shelf struct {
	items   []*item // oldest first
	memo    *wire.Memo
	encoded func(kind string)
}

type item struct {
	a       *assignment.Assignment
	written time.Time // when it was stored, zero if that is not known
	whole   *payload
	// deltas lead from the base of that generation to a; only the newest has any.
	deltas map[assignment.Generation]*payload
}

// Kinds of updates, as they are called in metrics.
const (
	kindWhole = "whole"
	kindDelta = "delta"
)

// newest is nil when there is none.
func (s *shelf) newest() *assignment.Assignment {
	if len(s.items) == 0 {
		return nil
	}
	return s.items[len(s.items)-1].a
}

// find returns the assignment of a generation if it is still held.
func (s *shelf) find(g assignment.Generation) *assignment.Assignment {
	if it := s.item(g); it != nil {
		return it.a
	}
	return nil
}

func (s *shelf) item(g assignment.Generation) *item {
	for _, it := range s.items {
		if it.a.Generation() == g {
			return it
		}
	}
	return nil
}

// put makes a, stored at a time, the newest. What is of another store makes way.
func (s *shelf) put(a *assignment.Assignment, written time.Time) {
	if old := s.newest(); old != nil && old.StoreID() != a.StoreID() {
		s.items = nil
	}
	for _, it := range s.items {
		it.whole, it.deltas = nil, nil
	}
	s.items = append(s.items, &item{a: a, written: written})
	total := 0
	for i := len(s.items) - 2; i >= 0; i-- {
		total += s.items[i].a.NumSlices()
		// The one before the newest is what nearly everybody is on.
		if held := len(s.items) - i; held > maxHeld || held > 2 && total > maxHeldSlices {
			s.items = append([]*item(nil), s.items[i+1:]...)
			break
		}
	}
}

// insert adds an older assignment of the newest's store for deltas to stand on.
func (s *shelf) insert(a *assignment.Assignment) {
	total := a.NumSlices()
	for _, it := range s.items[:max(len(s.items)-1, 0)] {
		total += it.a.NumSlices()
	}
	switch {
	case len(s.items) == 0 || s.find(a.Generation()) != nil:
		return
	case len(s.items) > 1 && (len(s.items) >= maxHeld || total > maxHeldSlices):
		s.items = s.items[1:]
	}
	at := 0
	for at < len(s.items)-1 && s.items[at].a.Generation() < a.Generation() {
		at++
	}
	s.items = slices.Insert(s.items, at, &item{a: a})
}

func (s *shelf) clear() { s.items = nil }

// whole is the encoding of a held generation, nil if it is not held.
func (s *shelf) whole(g assignment.Generation) *payload {
	it := s.item(g)
	if it == nil {
		return nil
	}
	if it.whole == nil {
		it.whole = framePayload(s.once(kindWhole, func() (*wire.Frame, error) { return s.memo.WholeFrame(it.a) }))
	}
	return it.whole
}

// delta is the encoding of what leads from a base to the newest, nil if the base
// is not held or is not what the checksum says.
func (s *shelf) delta(g assignment.Generation, sum uint64) *payload {
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
			it.deltas = make(map[assignment.Generation]*payload)
		}
		p = framePayload(s.once(kindDelta, func() (*wire.Frame, error) { return s.memo.DeltaFrame(base, it.a) }))
		it.deltas[g] = p
	}
	return p
}

// once encodes once, for subscribers and for the second tier, which are sent the
// same frame in different messages.
func (s *shelf) once(kind string, encode func() (*wire.Frame, error)) (frame func() (*wire.Frame, error), encoded func()) {
	frame = sync.OnceValues(func() (*wire.Frame, error) {
		f, err := encode()
		if err == nil {
			s.encoded(kind)
		}
		return f, err
	})
	return frame, func() {}
}
