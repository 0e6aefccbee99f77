package loadbalance

import "github.com/slicer-project/slicer/assignment"

const (
	// A key is cut out into a slice of its own when it carries this share of what
	// a task should, or is this much hotter than the mean slice if that is more.
	hotKeyOfTask, hotKeyOfSlice = .03, 2
	// When something has to move, a key is cut out as well that carries this share
	// of its slice, and this share of what a task should: it is what moves, and the
	// rest of the slice stays.
	mainKeyOfSlice, mainKeyOfTask = .5, .002
)

// isolate gives the heaviest keys slices of their own, so that they can be
// moved and replicated without dragging along their neighbours: such a slice is
// next to no part of the keyspace.
func (b *placement) isolate() {
	least := max(hotKeyOfTask*b.mean(), hotKeyOfSlice*b.total/float64(b.n))
	b.cutOut(func(load, _ float64) bool { return load >= least })
}

// narrow gives the keys that carry most of their slices slices of their own.
func (b *placement) narrow() {
	b.cutOut(func(load, share float64) bool {
		return share >= mainKeyOfSlice && load >= mainKeyOfTask*b.mean()
	})
}

// cutOut cuts out the hot keys that are worth it, by their load and its share of
// that of their slice.
func (b *placement) cutOut(worth func(load, share float64) bool) {
	limit := b.maxSlices()
	for _, h := range hotKeys(&b.in) {
		if b.n+2 > limit {
			return
		}
		i, known := b.pieceOf(h.Key)
		if !known {
			continue
		}
		p := &b.pieces[i]
		rate := sane(h.Rate) - sane(h.Error)
		share := min(rate/b.in.Loads.Slice[i], 1)
		if p.end-p.start == 1 || p.fixed || !b.roomFor(2*p.replicas()) || !worth(share*p.load, share) {
			continue
		}
		b.say(KindSplit, ReasonHotKey, i, -1, -1, share, 0, 0)
		b.cut(i, h.Key, share)
	}
}

// cut gives a key of piece i a piece of its own with a share of the load.
func (b *placement) cut(i int32, k assignment.SliceKey, share float64) {
	p := &b.pieces[i]
	below := (1 - share) * b.portion(i, k)
	leap := 0.0
	if b.est != nil {
		leap = b.est[i].leap
	}
	if k > p.start {
		i = b.splitAs(i, k, below, 3)
	}
	if b.pieces[i].end > k+1 {
		b.splitAs(i, k+1, min(share/(1-below), 1), 3)
	}
	if leap > 0 {
		// It is the key that jumped, and its neighbours did not.
		b.est[i].from, b.est[i].leap = 0, leap*share
		for _, j := range [...]int32{b.pieces[i].prev, b.pieces[i].next} {
			if j >= 0 {
				b.est[j].leap = 0
			}
		}
	}
}

// hotKeys are the keys worth a look: those that were measured in slices that
// still are as they were measured.
func hotKeys(in *Input) []assignment.HotKey {
	if in.Loads == nil || len(in.Loads.Slice) != in.Prev.NumSlices() {
		return nil
	}
	return in.Loads.Hot
}

// pieceOf finds the piece that holds a key, if it is a slice of Prev as it was.
func (b *placement) pieceOf(k assignment.SliceKey) (int32, bool) {
	if k >= assignment.KeyspaceEnd || b.in.Prev == nil {
		return 0, false
	}
	i := int32(b.in.Prev.Find(k))
	p := &b.pieces[i]
	whole := !p.gone && p.slice() == b.in.Prev.Slice(int(i))
	return i, whole && p.load > 0 && b.in.Loads.Slice[i] > 0
}
