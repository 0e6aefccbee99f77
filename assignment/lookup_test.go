package assignment_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

// shapes are slice starts of all kinds; the first is 0.
func shapes(rng *rand.Rand) map[string][]assignment.SliceKey {
	const last = assignment.KeyspaceEnd - 1
	m := map[string][]assignment.SliceKey{
		"one":           {0},
		"two":           {0, 1},
		"the last key":  {0, last},
		"the last keys": {0, last - 1, last},
		"halves":        {0, 1 << 62},
		"around a half": {0, 1<<62 - 1, 1 << 62, 1<<62 + 1},
	}
	for _, n := range []int{3, 16, 17, 255, 1000, 5000} {
		m[fmt.Sprintf("equal %d", n)] = assignment.Equal(n)
		uniform := make([]assignment.SliceKey, n)
		crowded := make([]assignment.SliceKey, n) // hot keys cut out of a few places
		powers := make([]assignment.SliceKey, n)
		first := make([]assignment.SliceKey, n)
		for i := 1; i < n; i++ {
			uniform[i] = assignment.SliceKey(rng.Uint64() >> 1)
			crowded[i] = assignment.SliceKey(rng.IntN(3)+1)<<61 - 500 + assignment.SliceKey(rng.IntN(1000))
			powers[i] = assignment.SliceKey(rng.Uint64() >> 1 >> rng.IntN(63))
			first[i] = assignment.SliceKey(i)
		}
		m[fmt.Sprintf("uniform %d", n)], m[fmt.Sprintf("crowded %d", n)] = uniform, crowded
		m[fmt.Sprintf("powers %d", n)], m[fmt.Sprintf("first %d", n)] = powers, first
	}
	for name, starts := range m {
		slices.Sort(starts)
		starts = slices.Compact(starts)
		m[name] = slices.DeleteFunc(starts, func(k assignment.SliceKey) bool { return k > last })
	}
	return m
}

func newPlaced(t *testing.T, p assignment.Placement) *assignment.Assignment {
	t.Helper()
	a, err := assignment.New(assignment.Header{Job: "job", Generation: 1}, newTasks(5), assignment.Columns{Starts: p.Starts, Offsets: p.Offsets, Owners: p.Owners})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestLookupAgainstBinarySearch(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 0))
	for name, starts := range shapes(rng) {
		n := len(starts)
		a := newPlaced(t, placed(rng, starts, false))
		b := newPlaced(t, placed(rng, starts, true))
		keys := []assignment.SliceKey{0, 1, assignment.KeyspaceEnd - 1}
		for _, s := range starts {
			keys = append(keys, s, s+1)
			if s > 0 {
				keys = append(keys, s-1)
			}
		}
		for range 2000 {
			keys = append(keys, assignment.SliceKey(rng.Uint64()>>1), assignment.SliceKey(rng.Uint64()>>1>>rng.IntN(63)))
		}
		for _, k := range keys {
			if k >= assignment.KeyspaceEnd {
				continue
			}
			want := sort.Search(n, func(i int) bool { return starts[i] > k }) - 1
			if got := a.Find(k); got != want || !a.Slice(got).Contains(k) {
				t.Fatalf("%s, seed %d: key %s is found in slice %d, want %d", name, seed, k, got, want)
			}
			if r := a.Lookup(k); r.Len() != 1 || r.Position(0) != want%5 {
				t.Fatalf("%s, seed %d: owner of key %s", name, seed, k)
			}
			if r := b.Lookup(k); b.Find(k) != want || r != b.Replicas(want) {
				t.Fatalf("%s, seed %d: key %s is found in slice %d with %d owners, want %d with %d", name, seed, k, b.Find(k), r.Len(), want, b.Replicas(want).Len())
			}
		}
		for _, k := range []assignment.SliceKey{assignment.KeyspaceEnd, assignment.KeyspaceEnd + 1, math.MaxUint64} {
			if got := a.Find(k); got != n-1 {
				t.Errorf("%s: key %s, past the end, is found in slice %d, want the last", name, k, got)
			}
			if r := b.Lookup(k); r != b.Replicas(n-1) {
				t.Errorf("%s: the owners of key %s, past the end, are not those of the last slice", name, k)
			}
		}
	}
}

func TestLookupAllocatesNothing(t *testing.T) {
	a := benchAssignment(t, 10_000, 100)
	key := "user/00000004711"
	next := withChanges(t, a, 5000, 10, 1) // of every other slice
	d, err := assignment.Diff(a, next)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := assignment.ApplyPatched(a, d)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, a := range []*assignment.Assignment{a, patched} {
		if n := testing.AllocsPerRun(1000, func() {
			r := a.Lookup(assignment.KeyOf(key))
			sum += r.Position(0) + int(r.Since(0)) + len(r.At(0).Name)
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
	if !patched.Patched() {
		t.Error("a lookup needed columns")
	}
}
