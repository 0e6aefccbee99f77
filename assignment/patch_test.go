package assignment_test

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
)

// Patches of patches: each step of a job's life as a delta on what came of those before, in which
// nothing has needed columns, or something has now and then.
func TestPatches(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 5))
		l := newLife(rng, 40, 1000)
		l.oneIn, l.stays = 600, true // else too much changes, and tasks change places
		all, patched := []*assignment.Assignment{l.step(t)}, 0
		held := []*assignment.Assignment{all[0], all[0], all[0]} // by what applies the deltas
		for range 150 {
			next := l.step(t)
			d, err := assignment.Diff(all[len(all)-1], next)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for i, apply := range []func(*assignment.Assignment, *assignment.Delta) (*assignment.Assignment, error){assignment.ApplyHalfPatched, assignment.ApplyPatched, assignment.ApplyPatched} {
				if held[i], err = apply(held[i], d); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if i := rng.IntN(2 * next.NumSlices()); i < next.NumSlices() {
				checkSame(t, held[2], next) // makes columns
			}
			all = append(all, next)
			for range 50 {
				k := next.Slice(rng.IntN(next.NumSlices())).Start
				for i, a := range held {
					if !sameOwners(a.Lookup(k), next.Lookup(k)) {
						t.Fatalf("seed %d, %d: key %s has others", seed, i, k)
					}
				}
			}
			if held[1].DeltaSum() != next.DeltaSum() {
				t.Fatalf("seed %d: sum %x, want %x", seed, held[1].DeltaSum(), next.DeltaSum())
			}
			if held[0].Patched() {
				patched++
			}
		}
		if !held[1].Patched() || patched < 50 {
			t.Errorf("seed %d: %d patches", seed, patched)
		}
		for _, a := range held {
			checkSame(t, a, all[len(all)-1])
		}
	}
}

// A patch without edits, which has another table of generations than its base, is patched.
func TestPatchWithoutEdits(t *testing.T) {
	at := func(g, horizon assignment.Generation, owners []uint32, since []uint8, table ...assignment.Generation) *assignment.Assignment {
		t.Helper()
		h := assignment.Header{Job: "job", StoreID: 1, Generation: g, Horizon: horizon}
		a, err := assignment.New(h, newTasks(4), assignment.Columns{Starts: assignment.Equal(4), Owners: owners, Since: since, SinceTable: table})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	all := []*assignment.Assignment{
		at(8, 3, []uint32{0, 1, 2, 3}, []uint8{1, 2, 2, 0}, 8, 5),
		at(9, 5, []uint32{0, 1, 2, 3}, []uint8{1, 0, 0, 0}, 8),
		at(10, 5, []uint32{0, 3, 2, 3}, []uint8{2, 1, 0, 0}, 10, 8),
	}
	held := all[0]
	for i, next := range all[1:] {
		d, err := assignment.Diff(all[i], next)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Edits) != i {
			t.Errorf("%d edits, want %d", len(d.Edits), i)
		}
		if held, err = assignment.ApplyPatched(held, d); err != nil {
			t.Fatal(err)
		}
		if !held.Patched() || held.DeltaSum() != next.DeltaSum() {
			t.Errorf("%d: patched %v, sum %x, want %x", i, held.Patched(), held.DeltaSum(), next.DeltaSum())
		}
	}
	checkSame(t, held, all[2])
}

func TestPatchesOfArbitraryPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := small(t, 8)
		held := base
		for g := assignment.Generation(9); g < 13; g++ {
			next := small(t, g)
			d, err := assignment.Diff(base, next)
			if err != nil {
				t.Fatal(err)
			}
			if held, err = assignment.ApplyPatched(held, d); err != nil {
				t.Fatal(err)
			}
			base = next
		}
		checkSame(t, held, base)
	})
}
