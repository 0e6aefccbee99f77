package record

import (
	"fmt"
	"sort"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Head says which generation is the newest, and where the kept ones are.
type Head struct {
	Generation assignment.Generation
	Checksum   uint64    // of the assignment
	Segments   []Segment // oldest first; the last one holds Generation
	// Entries is how many about generations the history has had.
	Entries int64
}

// Segment is a run of generations that begins with one kept whole.
type Segment struct {
	First       assignment.Generation
	Generations int
	// Encoded sizes, bytes: of the first generation, before it was compressed, and of the
	// deltas of the others.
	Whole, Deltas int
}

// segment returns the one that g would lie in.
func (h *Head) segment(g assignment.Generation) (Segment, bool) {
	i := sort.Search(len(h.Segments), func(i int) bool { return h.Segments[i].First > g })
	if i == 0 || g > h.Generation {
		return Segment{}, false
	}
	return h.Segments[i-1], true
}

// EncodeHead seals it.
func (l Layout) EncodeHead(job string, h *Head) []byte {
	m := &slicerv1.StoredHead{Generation: int64(h.Generation), Checksum: h.Checksum, Entries: h.Entries}
	for _, s := range h.Segments {
		m.Segments = append(m.Segments, &slicerv1.StoredSegment{
			First: int64(s.First), Generations: uint32(s.Generations),
			WholeBytes: uint64(s.Whole), DeltaBytes: uint64(s.Deltas),
		})
	}
	return l.marshal(l.Head(job), m)
}

// VersionOf is the version or generation in a record below Jobs, below 0 when it is corrupt.
func VersionOf(l *Layout, job string, p Part, value []byte) int64 {
	var n int64
	var err error
	switch p {
	case PartConfig:
		var j store.Job
		j, err = l.DecodeJob(job, value)
		n = j.Version
	case PartHead:
		var h *Head
		if h, err = l.DecodeHead(job, value); err == nil {
			n = int64(h.Generation)
		}
	case PartOverrides:
		var c store.Overrides
		c, err = l.DecodeOverrides(job, value)
		n = c.Version
	}
	if err != nil {
		return -1
	}
	return n
}

// DecodeHead reads it.
func (l Layout) DecodeHead(job string, value []byte) (*Head, error) {
	key := l.Head(job)
	var m slicerv1.StoredHead
	if err := l.unmarshal(key, value, &m); err != nil {
		return nil, err
	}
	h := &Head{Generation: assignment.Generation(m.Generation), Checksum: m.Checksum, Entries: m.Entries}
	if h.Generation < 1 || h.Generation > assignment.MaxGeneration || len(m.Segments) < 1 || len(m.Segments) > maxSegments {
		return nil, Corrupt(key, "generation %d in %d segments", m.Generation, len(m.Segments))
	}
	if m.Entries < 0 || m.Entries > maxVersion {
		return nil, Corrupt(key, "%d entries of history", m.Entries)
	}
	below := assignment.Generation(0)
	for _, s := range m.Segments {
		first := assignment.Generation(s.GetFirst())
		if first <= below || first > h.Generation || s.GetGenerations() < 1 || s.GetGenerations() > MaxSegment ||
			s.GetWholeBytes() > 1<<40 || s.GetDeltaBytes() > 1<<40 {
			return nil, Corrupt(key, "segment of %d generations from %d", s.GetGenerations(), first)
		}
		below = first
		h.Segments = append(h.Segments, Segment{first, int(s.Generations), int(s.WholeBytes), int(s.DeltaBytes)})
	}
	return h, nil
}

// Generation is the record of one generation.
type Generation struct {
	Generation, Previous assignment.Generation
	Checksum             uint64 // of the assignment
	Attempt              uint64 // whose pieces these are
	Delta, Whole         Blob
}

// EncodeGeneration seals it.
func (l Layout) EncodeGeneration(job string, g *Generation) []byte {
	return l.marshal(l.Generation(job, g.Generation), &slicerv1.StoredGeneration{
		Generation: int64(g.Generation), Previous: int64(g.Previous), Checksum: g.Checksum, Attempt: g.Attempt,
		Delta: g.Delta.proto(), Whole: g.Whole.proto(),
	})
}

// DecodeGeneration reads it; kv's key is one of job's Generations.
func (l Layout) DecodeGeneration(job string, kv KV) (*Generation, error) {
	var m slicerv1.StoredGeneration
	if err := l.unmarshal(kv.Key, kv.Value, &m); err != nil {
		return nil, err
	}
	number, ok := l.GenerationOf(job, kv.Key)
	if !ok || int64(number) != m.Generation || m.Previous < 0 || m.Previous >= m.Generation {
		return nil, Corrupt(kv.Key, "generation %d after %d", m.Generation, m.Previous)
	}
	g := &Generation{Generation: number, Previous: assignment.Generation(m.Previous), Checksum: m.Checksum, Attempt: m.Attempt}
	var err error
	if g.Delta, err = blobFrom(m.Delta); err == nil {
		g.Whole, err = blobFrom(m.Whole)
	}
	if err == nil && g.Delta.Becomes != 0 {
		err = fmt.Errorf("a compressed delta, of %d bytes", g.Delta.Becomes)
	}
	switch {
	case err != nil:
		return nil, Corrupt(kv.Key, "%w", err)
	case g.Delta.Size == 0 && g.Whole.Size == 0:
		return nil, Corrupt(kv.Key, "neither whole nor delta")
	}
	return g, nil
}
