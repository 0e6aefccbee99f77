package record

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	"github.com/slicer-project/slicer/assignment/wire"
)

// Compressed wholes take fewer bytes and pieces, and whatever is wrong with one is told by
// the key of its generation.
func TestCompress(t *testing.T) {
	a := storetest.First("a", layout.StoreID, 1, 3, 20_000)
	whole, err := wire.EncodeAssignment(a)
	if err != nil {
		t.Fatal(err)
	}
	l := layout
	l.Compress = true
	write := func(spoil func(*Generation)) (shelf, *Head) {
		c, err := l.Plan(nil, nil, a, 2, 9)
		if err != nil {
			t.Fatal(err)
		}
		if spoil != nil {
			spoil(c.Generation)
		}
		s := make(shelf)
		s.carryOut("a", c)
		return s, c.Head
	}
	s, head := write(func(g *Generation) {
		if w := g.Whole; w.Becomes != len(whole) || w.Size >= len(whole) || w.Pieces != piecesOf(w.Size) {
			t.Errorf("%d bytes in %d pieces become %d, the whole has %d", w.Size, w.Pieces, w.Becomes, len(whole))
		}
	})
	if head.Segments[0].Whole != len(whole) {
		t.Errorf("the head says %d bytes, want %d: when a segment ends does not depend on how it is written", head.Segments[0].Whole, len(whole))
	}
	if got, err := layout.Read(context.Background(), s, "a", head, 1); err != nil || !storetest.Same(got, a) {
		t.Errorf("%v, %v", got, err)
	}
	for name, spoil := range map[string]func(*Generation){
		"a wrong size":       func(g *Generation) { g.Whole.Becomes++ },
		"no size":            func(g *Generation) { g.Whole.Becomes = 0 },
		"too large":          func(g *Generation) { g.Whole.Becomes = wire.MaxEncodedSize + 1 },
		"a compressed delta": func(g *Generation) { g.Delta = Blob{Size: 1, Inline: []byte{0}, Becomes: 2} },
	} {
		s, head := write(spoil)
		got, err := layout.Read(context.Background(), s, "a", head, 1)
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), layout.Generation("a", 1)) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
