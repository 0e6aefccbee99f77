package subset

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// checkSubset reports what every subset must be: k different tasks, all
// present.
func checkSubset(t *testing.T, name string, got []int, b Backends, k int) {
	t.Helper()
	if want := min(k, b.Len()); len(got) != want {
		t.Fatalf("%s: %d tasks %v, want %d", name, len(got), got, want)
	}
	seen := map[int]bool{}
	for _, task := range got {
		if !b.Has(task) {
			t.Fatalf("%s: task %d of %v is not present", name, task, got)
		}
		if seen[task] {
			t.Fatalf("%s: task %d twice in %v", name, task, got)
		}
		seen[task] = true
	}
}

func mustAppend(t *testing.T, a Algorithm, s Shape, m int) []int {
	t.Helper()
	got, err := a.Append(nil, s, m)
	if err != nil {
		t.Fatalf("%s, %+v, frontend %d: %v", label(a), s, m, err)
	}
	return got
}

func mustSubsets(t *testing.T, a Algorithm, s Shape) [][]int {
	t.Helper()
	got, err := Subsets(a, s)
	if err != nil {
		t.Fatalf("%s, %+v: %v", label(a), s, err)
	}
	return got
}

func TestSubsetIsASubset(t *testing.T) {
	forSeeds(t, 40, func(t *testing.T, r *rand.Rand) {
		for range 20 {
			q, b := randomAsk(r)
			for _, a := range variants() {
				s := Shape{Frontends: q.frontends, Backends: b, Size: q.k}
				got := mustAppend(t, a, s, q.m)
				checkSubset(t, label(a), got, b, q.k)

				// The destination's own elements stay; neither they nor its room
				// changes the answer.
				dst := append(make([]int, 0, r.IntN(2*b.Len()+2)+1), -7)
				dst, err := a.Append(dst, s, q.m)
				if err != nil || dst[0] != -7 || !slices.Equal(dst[1:], got) {
					t.Fatalf("%s: appended to [-7]: %v, %v, want -7 and %v", label(a), dst, err, got)
				}

				s.Size = b.Len() + 5
				all := mustAppend(t, a, s, q.m)
				slices.Sort(all)
				if !slices.Equal(all, b.Append(nil)) {
					t.Fatalf("%s: k above N: %v, want all of %v", label(a), all, q.tasks)
				}
			}
		}
	})
}

// Where k grows from 1 to N, a frontend with no subset-size churn only ever
// adds at the end.
func TestNoSizeChurn(t *testing.T) {
	forSeeds(t, 20, func(t *testing.T, r *rand.Rand) {
		q, b := randomAsk(r)
		for _, a := range variants() {
			switch a.(type) {
			case RoundRobin, DeterministicDropped, DeterministicBalanced:
				continue // these have it; the figures say how much
			}
			all := mustAppend(t, a, Shape{Frontends: q.frontends, Backends: b, Size: b.Len()}, q.m)
			for k := 1; k <= b.Len(); k++ {
				got := mustAppend(t, a, Shape{Frontends: q.frontends, Backends: b, Size: k}, q.m)
				if !slices.Equal(got, all[:k]) {
					t.Fatalf("%s %+v: k = %d gives %v, k = N %v", label(a), q, k, got, all)
				}
			}
		}
	})
}

func TestNoFrontendChurn(t *testing.T) {
	forSeeds(t, 20, func(t *testing.T, r *rand.Rand) {
		q, b := randomAsk(r)
		for _, a := range variants() {
			if NeedsFrontends(a) {
				continue
			}
			want := mustAppend(t, a, Shape{Backends: b, Size: q.k}, q.m)
			for range 20 {
				m := q.m + 1 + r.IntN(1000)
				if got := mustAppend(t, a, Shape{Frontends: m, Backends: b, Size: q.k}, q.m); !slices.Equal(got, want) {
					t.Fatalf("%s %+v: M = %d gives %v, M unknown %v", label(a), q, m, got, want)
				}
			}
		}
	})
}

// One backend more or less changes at most one connection of each frontend
// where every backend has a place of its own.
func TestOneBackendOneConnection(t *testing.T) {
	forSeeds(t, 20, func(t *testing.T, r *rand.Rand) {
		q, b := randomAsk(r)
		gone := q.tasks[r.IntN(len(q.tasks))]
		if len(q.tasks) == 1 {
			return
		}
		fewer, err := Present(slices.DeleteFunc(slices.Clone(q.tasks), func(t int) bool { return t == gone }))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []Algorithm{Consistent{}, Rendezvous{}, Ringsteady{Scaling: RawPositions}} {
			s := Shape{Frontends: 50, Backends: b, Size: q.k}
			before := mustSubsets(t, a, s)
			s.Backends = fewer
			after := mustSubsets(t, a, s)
			if c := Compare(before, after); c.MostDropped > 1 {
				t.Fatalf("%s %+v: without %d a frontend drops %d", label(a), q, gone, c.MostDropped)
			}
		}
	})
}

// Whatever is missing, be it inside or after the last task of the last lot, is
// padding: the order of the others is the order of the full lots without it.
func TestRocksteadierPadding(t *testing.T) {
	forSeeds(t, 40, func(t *testing.T, r *rand.Rand) {
		lot := 1 + r.IntN(MaxLot)
		columns := 1 + r.IntN(12)
		a := Rocksteadier{Lot: lot}
		m := r.IntN(500)
		full := mustAppend(t, a, Shape{Backends: Dense(lot * columns), Size: lot * columns}, m)

		// The last lot keeps at least one task, or there would be a lot less.
		present := map[int]bool{(columns-1)*lot + r.IntN(lot): true}
		for task := range lot * columns {
			if r.IntN(3) > 0 {
				present[task] = true
			}
		}
		want := slices.DeleteFunc(slices.Clone(full), func(task int) bool { return !present[task] })
		sorted := slices.Sorted(slices.Values(want))
		b, err := Present(sorted)
		if err != nil {
			t.Fatal(err)
		}
		if got := mustAppend(t, a, Shape{Backends: b, Size: b.Len()}, m); !slices.Equal(got, want) {
			t.Fatalf("L = %d, present %v, frontend %d:\n got %v\nwant %v", lot, sorted, m, got, want)
		}
	})
}

// A complete lot of frontends with one row each covers full backend lots
// exactly once.
func TestRocksteadierLotIsBalanced(t *testing.T) {
	for columns := 1; columns <= 40; columns++ {
		b := Dense(columns * DefaultLot)
		s := Shape{Frontends: 30, Backends: b, Size: columns}
		rows := mustSubsets(t, Rocksteadier{}, s)
		for first := 0; first < 30; first += DefaultLot {
			for task, c := range Connections(rows[first:first+DefaultLot], b) {
				if c != 1 {
					t.Fatalf("%d lots, frontends from %d: task %d has %d connections, want 1", columns, first, task, c)
				}
			}
		}
	}
}

// Each round of either deterministic form gives a backend at most one
// connection.
func TestDeterministicRounds(t *testing.T) {
	for _, a := range []Algorithm{DeterministicDropped{}, DeterministicBalanced{}} {
		for n := 1; n <= 60; n++ {
			for k := 1; k <= n; k++ {
				hands := n / k
				rows := mustSubsets(t, a, Shape{Frontends: 3 * hands, Backends: Dense(n), Size: k})
				for round := range 3 {
					counts := Connections(rows[round*hands:][:hands], Dense(n))
					if most := slices.Max(counts); most > 1 {
						t.Fatalf("%s: N = %d, k = %d, round %d: %v", label(a), n, k, round, counts)
					}
				}
			}
		}
	}
}

func TestLowestAgainstSort(t *testing.T) {
	forSeeds(t, 50, func(t *testing.T, r *rand.Rand) {
		q, b := randomAsk(r)
		keys := make([]uint64, b.Span())
		for i := range keys {
			keys[i] = uint64(r.IntN(5)) // many ties
		}
		k := min(q.k, b.Len())
		want := slices.Clone(q.tasks)
		slices.SortStableFunc(want, func(x, y int) int { return int(keys[x]) - int(keys[y]) })
		got := appendLowest(nil, b, k, func(task int) uint64 { return keys[task] })
		if !slices.Equal(got, want[:k]) {
			t.Fatalf("%v of keys %v: got %v, want %v", q.tasks, keys, got, want[:k])
		}
	})
}
