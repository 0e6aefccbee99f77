package record

import (
	"context"
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/wire"
)

// Source shows a store's records as they were at one moment.
type Source interface {
	// Scan returns the records of from <= key < to, in order of key.
	Scan(ctx context.Context, from, to string) ([]KV, error)
}

// Read puts together a kept generation, the newest or an older one. Errors match
// store.ErrNotFound, store.ErrCorrupt, or are src's.
func (l Layout) Read(ctx context.Context, src Source, job string, head *Head, g assignment.Generation) (*assignment.Assignment, error) {
	seg, ok := head.segment(g)
	if !ok {
		return nil, fmt.Errorf("generation %d of job %s: %w", g, job, store.ErrNotFound)
	}
	kvs, err := src.Scan(ctx, l.Generation(job, seg.First), l.Generation(job, g+1))
	if err != nil {
		return nil, err
	}
	chain, err := l.decodeChain(job, kvs)
	if err != nil {
		return nil, err
	}
	switch n := len(chain); {
	case n == 0 || chain[0].Generation != seg.First || chain[0].Whole.Size == 0:
		return nil, Corrupt(l.Generation(job, seg.First), "missing, the head says that it is a whole assignment")
	case n > MaxSegment:
		return nil, Corrupt(l.Head(job), "%d generations in the segment from %d", n, seg.First)
	case chain[n-1].Generation != g && g == head.Generation:
		return nil, Corrupt(l.Generation(job, g), "missing, the head says that it is the newest")
	case chain[n-1].Generation != g:
		return nil, fmt.Errorf("generation %d of job %s: %w", g, job, store.ErrNotFound)
	}
	a, err := l.readWhole(ctx, src, job, chain[0])
	if err != nil {
		return nil, err
	}
	return l.apply(ctx, src, job, head, a, chain[1:])
}

// Follow takes base, an earlier generation, forward to the newest. kvs are the
// records of the generations after base. ok is false when they do not lead there
// by deltas: Read then.
func (l Layout) Follow(ctx context.Context, src Source, job string, head *Head, base *assignment.Assignment, kvs []KV) (a *assignment.Assignment, ok bool, err error) {
	chain, err := l.decodeChain(job, kvs)
	if err != nil || len(chain) == 0 {
		return nil, false, err
	}
	for _, g := range chain {
		if g.Delta.Size == 0 {
			return nil, false, nil
		}
	}
	if chain[0].Previous != base.Generation() || chain[len(chain)-1].Generation != head.Generation {
		return nil, false, nil
	}
	a, err = l.apply(ctx, src, job, head, base, chain)
	return a, err == nil, err
}

// decodeChain reads generations that follow one another.
func (l Layout) decodeChain(job string, kvs []KV) ([]*Generation, error) {
	chain := make([]*Generation, len(kvs))
	for i, kv := range kvs {
		g, err := l.DecodeGeneration(job, kv)
		if err != nil {
			return nil, err
		}
		if i > 0 && g.Previous != chain[i-1].Generation {
			return nil, Corrupt(l.Generation(job, g.Previous), "missing, generation %d follows it", g.Generation)
		}
		chain[i] = g
	}
	return chain, nil
}

func (l Layout) readWhole(ctx context.Context, src Source, job string, g *Generation) (*assignment.Assignment, error) {
	data, err := l.blob(ctx, src, job, g, 'w', g.Whole)
	if err != nil {
		return nil, err
	}
	if n := g.Whole.Becomes; n != 0 {
		data, err = wire.Inflate(data, uint64(n))
	}
	var a *assignment.Assignment
	if err == nil {
		a, err = wire.DecodeAssignment(data)
	}
	if err != nil {
		return nil, Corrupt(l.Generation(job, g.Generation), "%w", err)
	}
	return a, l.check(job, a, g)
}

func (l Layout) apply(ctx context.Context, src Source, job string, head *Head, a *assignment.Assignment, chain []*Generation) (*assignment.Assignment, error) {
	for _, g := range chain {
		data, err := l.blob(ctx, src, job, g, 'd', g.Delta)
		if err != nil {
			return nil, err
		}
		d, err := wire.DecodeDelta(data)
		if err == nil {
			a, err = assignment.Apply(a, d)
		}
		if err != nil {
			return nil, Corrupt(l.Generation(job, g.Generation), "%w", err)
		}
		if err := l.check(job, a, g); err != nil {
			return nil, err
		}
	}
	if a.Generation() == head.Generation && a.Checksum() != head.Checksum {
		return nil, Corrupt(l.Head(job), "checksum %016x, the assignment's is %016x", head.Checksum, a.Checksum())
	}
	return a, nil
}

// check compares an assignment with the record that it was read from.
func (l Layout) check(job string, a *assignment.Assignment, g *Generation) error {
	if a.Job() != job || a.StoreID() != l.StoreID || a.Generation() != g.Generation || a.Previous() != g.Previous || a.Checksum() != g.Checksum {
		return Corrupt(l.Generation(job, g.Generation), "it holds %v after %d of store %016x with checksum %016x, not generation %d after %d of store %016x with %016x",
			a, a.Previous(), a.StoreID(), a.Checksum(), g.Generation, g.Previous, l.StoreID, g.Checksum)
	}
	return nil
}

// blob returns bytes that are kept inline or in pieces.
func (l Layout) blob(ctx context.Context, src Source, job string, g *Generation, kind byte, b Blob) ([]byte, error) {
	if b.Pieces == 0 {
		return b.Inline, nil
	}
	prefix := l.AttemptChunks(job, g.Generation, g.Attempt) + string(kind)
	kvs, err := src.Scan(ctx, prefix, prefix+":") // ":" follows the digits
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, b.Size)
	for i := range b.Pieces {
		key := fmt.Sprintf("%s%04d", prefix, i)
		if i >= len(kvs) || kvs[i].Key != key {
			return nil, Corrupt(key, "missing, generation %d needs it", g.Generation)
		}
		piece, err := l.Open(key, kvs[i].Value)
		if err != nil {
			return nil, err
		}
		data = append(data, piece...)
	}
	if len(data) != b.Size {
		return nil, Corrupt(l.Generation(job, g.Generation), "%d bytes in its pieces, the record says %d", len(data), b.Size)
	}
	return data, nil
}
