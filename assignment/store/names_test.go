package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/slicer-project/slicer/assignment/store"
	"google.golang.org/protobuf/proto"
)

// many are n names of so many bytes, of one identity or, with {task}, of one each.
func many(prefix string, n, size int, identity string) (all []store.Held) {
	for i := range n {
		h := store.Held{Task: fmt.Sprintf("%s%0*d", prefix, size-len(prefix), i), Identity: identity}
		if identity == "" {
			h.Identity = "spiffe://corp/ns/cache/task/" + h.Task
		}
		all = append(all, h)
	}
	return all
}

// TestNamesFit: names are left out of identities that hold most, never one's few for another's many,
// and what is left is no longer than the bound.
func TestNamesFit(t *testing.T) {
	for _, c := range []struct {
		name string
		held []store.Held
		left int                 // -1: some
		all  map[string]struct{} // prefixes of names none of which is left out
	}{
		{name: "none"},
		{name: "ten thousand of one identity", held: many("a", 10000, 25, "spiffe://corp/cache")},
		{name: "ten thousand of one each", held: many("a", 10000, 25, "")},
		{name: "a squatter", held: append(many("a", 9000, 250, "spiffe://corp/x"), many("b", 1000, 25, "spiffe://corp/y")...), left: -1, all: map[string]struct{}{"b": {}}},
		{name: "two squatters", held: append(many("a", 9000, 250, "spiffe://corp/x"), append(many("b", 1000, 25, "spiffe://corp/y"), many("c", 9000, 250, "spiffe://corp/z")...)...), left: -1, all: map[string]struct{}{"b": {}}},
	} {
		n := store.Names{Version: 1, Held: c.held}
		before := slices.Clone(c.held)
		left := n.Fit()
		size := proto.Size(store.NamesToProto(n))
		if size > store.MaxNamesSize || n.Size() < size || n.Validate() != nil {
			t.Errorf("%s: %d bytes, said to be %d: %v", c.name, size, n.Size(), n.Validate())
		}
		if left != c.left && !(c.left < 0 && left > 0) || len(n.Held)+left != len(before) || !slices.Equal(before, c.held) {
			t.Errorf("%s: %d of %d left out, want %d", c.name, left, len(before), c.left)
		}
		if left > 0 && size < store.MaxNamesSize*9/10 {
			t.Errorf("%s: %d left out, and only %d bytes are used", c.name, left, size)
		}
		for _, h := range before {
			if _, ok := c.all[h.Task[:1]]; ok && n.Of(h.Task) != h.Identity {
				t.Fatalf("%s: %s is left out", c.name, h.Task)
			}
		}
		again, err := store.NamesFromProto(store.NamesToProto(n))
		if err != nil || !slices.Equal(again.Held, n.Held) {
			t.Errorf("%s: %v", c.name, err)
		}
		t.Logf("%-30s %5d names in %7d bytes", c.name, len(n.Held), size)
	}
}
