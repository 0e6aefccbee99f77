package record

import (
	"context"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
)

// Rebuild makes a head from the records of a job's generations, in order of key: it
// keeps each that can be read whole, or by a delta on the one before, and returns
// the others as dropped. head is nil when none can be read. The error is src's.
func (l Layout) Rebuild(ctx context.Context, src Source, job string, kvs []KV, entries int64) (head *Head, kept []*Generation, dropped []KV, err error) {
	var newest *assignment.Assignment
	h := &Head{Entries: entries}
	for _, kv := range kvs {
		if err := ctx.Err(); err != nil {
			return nil, nil, nil, err
		}
		g, err := l.DecodeGeneration(job, kv)
		if err != nil {
			dropped = append(dropped, kv)
			continue
		}
		n := len(h.Segments)
		if newest != nil && g.Previous == newest.Generation() && g.Delta.Size > 0 && h.Segments[n-1].takes(g.Delta.Size) {
			if a, err := l.apply(ctx, src, job, &Head{}, newest, []*Generation{g}); err == nil {
				h.Segments[n-1].Generations++
				h.Segments[n-1].Deltas += g.Delta.Size
				newest, kept = a, append(kept, g)
				continue
			}
		}
		a, err := l.readWhole(ctx, src, job, g)
		if err != nil || g.Whole.Size == 0 || n == maxSegments {
			dropped = append(dropped, kv)
			continue
		}
		h.Segments = append(h.Segments, Segment{First: g.Generation, Generations: 1, Whole: g.Whole.Size})
		newest, kept = a, append(kept, g)
	}
	if newest == nil {
		return nil, nil, dropped, nil
	}
	h.Generation, h.Checksum = newest.Generation(), newest.Checksum()
	return h, kept, dropped, nil
}

// CheckDelta reads the delta of a generation that is kept whole, too: Read does not
// need it, but Follow does. Its error is src's, or matches store.ErrCorrupt.
func (l Layout) CheckDelta(ctx context.Context, src Source, job string, g *Generation) error {
	if g.Whole.Size == 0 || g.Delta.Size == 0 {
		return nil
	}
	data, err := l.blob(ctx, src, job, g, 'd', g.Delta)
	if err != nil {
		return err
	}
	if _, err := wire.DecodeDelta(data); err != nil {
		return Corrupt(l.Generation(job, g.Generation), "%w", err)
	}
	return nil
}

// Lost is what stands in the place of a tombstone that cannot be read: versions and
// orders go on far ahead of those that it may have had.
func Lost(last assignment.Generation) Tombstone {
	return Tombstone{Version: lostVersion, Generation: last, Overrides: lostVersion}
}

// MaxValue bounds the value of a record, bytes.
const MaxValue = maxValue
