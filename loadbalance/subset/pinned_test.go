package subset

import (
	"math"
	"math/bits"
	"slices"
	"testing"
)

// Worked examples of the papers that need more than an algorithm's output; the
// others are in testdata/pinned.

// Article, section "In Search of a New Algorithm": the sequence's beginning, and
// its example of computing element 5 in 8 bits.
func TestVanDerCorput(t *testing.T) {
	want := []float64{0, 1. / 2, 1. / 4, 3. / 4, 1. / 8, 5. / 8, 3. / 8, 7. / 8}
	for i, x := range want {
		if got := float64(turn(i)) / (1 << 32) / (1 << 32); got != x {
			t.Errorf("position of %d is %v, want %v", i, got, x)
		}
	}
	if got := turn(5) >> 56; got != 160 {
		t.Errorf("5 in 8 bits mirrors to %d, want 160", got)
	}
}

// The rows of Rocksteadier, and the place where the article's print and its own
// construction differ.
func TestRowOrder(t *testing.T) {
	order := make([]int, 10)
	for i := range order {
		order[startRow(i, 10)] = i
	}
	if want := []int{0, 8, 4, 2, 6, 1, 9, 5, 3, 7}; !slices.Equal(order, want) {
		t.Errorf("order of rows for L = 10 is %v, want %v", order, want)
	}
	for lot := 1; lot <= MaxLot; lot++ {
		var want []int
		for i := range lot {
			want = append(want, i)
		}
		slices.SortFunc(want, func(a, b int) int {
			if bits.Reverse64(uint64(a)) < bits.Reverse64(uint64(b)) {
				return -1
			}
			return 1
		})
		for row, i := range want {
			if got := startRow(i, lot); got != row {
				t.Errorf("L = %d: frontend %d starts at row %d, want %d", lot, i, got, row)
			}
		}
	}
}

// "When M = N frontend m starts at backend m" holds for raw positions, for
// every N, and makes the balance ideal; scaled it does not hold.
func TestRingsteadyEqualSizes(t *testing.T) {
	scaledDiffers := false
	for n := 1; n <= 300; n++ {
		s := Shape{Frontends: n, Backends: Dense(n), Size: min(n, 7)}
		rows := mustSubsets(t, Ringsteady{Scaling: RawPositions}, s)
		for m, row := range rows {
			if row[0] != m {
				t.Fatalf("raw, M = N = %d: frontend %d starts at %d", n, m, row[0])
			}
		}
		if u := Utilization(rows, s.Backends); u != 1 {
			t.Fatalf("raw, M = N = %d: utilization %v, want 1", n, u)
		}
		for m, row := range mustSubsets(t, Ringsteady{}, s) {
			scaledDiffers = scaledDiffers || row[0] != m
		}
	}
	if !scaledDiffers {
		t.Error("backend-scaled Ringsteady starts frontend m at backend m for every M = N")
	}
}

// Article, section "The Previous Approach": round robin has N/gcd(k, N)
// distinct subsets, 5 for N = 10 and k = 4 (of 210 that would be possible).
func TestRoundRobinDiversity(t *testing.T) {
	for n := 1; n <= 60; n++ {
		for k := 1; k <= n; k++ {
			rows := mustSubsets(t, RoundRobin{}, Shape{Frontends: n, Backends: Dense(n), Size: k})
			if got, want := Distinct(rows), n/gcd(k, n); got != want {
				t.Fatalf("N = %d, k = %d: %d distinct subsets, want %d", n, k, got, want)
			}
		}
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Article, Deterministic subsetting: its own shuffles, dealt by the rules here.
// The first two shuffles leave tasks 2 and 4, and then 9, 1, ... over; with
// leftovers balanced, tasks 0 and 1 and then 2 and 3 are.
func TestDeterministicByTheArticlesShuffles(t *testing.T) {
	const n, k = 10, 4
	check := func(decks [][]int, want [][]int) {
		t.Helper()
		for m, subset := range want {
			round, hand := deal(m, n/k)
			if got := decks[round][hand*k:][:k]; !slices.Equal(got, subset) {
				t.Errorf("frontend %d has %v, want %v", m, got, subset)
			}
		}
	}
	check([][]int{{9, 1, 3, 0, 8, 6, 5, 7, 2, 4}, {7, 2, 0, 8, 9, 1, 4, 5, 3, 6}},
		[][]int{{9, 1, 3, 0}, {8, 6, 5, 7}, {7, 2, 0, 8}})
	check([][]int{{8, 3, 9, 2, 4, 6, 5, 7}, {9, 7, 1, 6, 0, 5, 4, 8}},
		[][]int{{8, 3, 9, 2}, {4, 6, 5, 7}, {9, 7, 1, 6}, {0, 5, 4, 8}})

	rows := mustSubsets(t, DeterministicBalanced{}, Shape{Frontends: 20, Backends: Dense(n), Size: k})
	for round := range 10 {
		var left []int
		for task, c := range Connections(rows[2*round:][:2], Dense(n)) {
			if c == 0 {
				left = append(left, task)
			}
		}
		first := 2 * round % n
		if want := []int{first, first + 1}; !slices.Equal(left, want) {
			t.Errorf("round %d leaves %v over, want %v", round, left, want)
		}
	}
}

// SRE book, chapter 20: 12 backends and k = 3 make rounds of four clients, and
// ten clients give every backend two or three connections.
func TestDeterministicSREBookRounds(t *testing.T) {
	decks := [][]int{
		{0, 6, 3, 5, 1, 7, 11, 9, 2, 4, 8, 10},
		{8, 11, 4, 0, 5, 6, 10, 3, 2, 7, 9, 1},
		{8, 3, 7, 2, 1, 4, 9, 10, 6, 5, 0, 11},
	}
	var book [][]int
	for client := range 10 {
		round, hand := deal(client, 12/3)
		if round != client/4 || hand != client%4 {
			t.Errorf("client %d is dealt hand %d of round %d", client, hand, round)
		}
		book = append(book, decks[round][hand*3:][:3])
	}
	ours := mustSubsets(t, DeterministicDropped{}, Shape{Frontends: 10, Backends: Dense(12), Size: 3})
	for _, rows := range [][][]int{book, ours} {
		for task, c := range Connections(rows, Dense(12)) {
			if c != 2 && c != 3 {
				t.Errorf("backend %d has %d connections, want 2 or 3", task, c)
			}
		}
	}
}

// SRE book, figure 20-5: 300 clients of 300 backends with k = 10.
func TestDeterministicSREBookBalance(t *testing.T) {
	for _, a := range []Algorithm{DeterministicDropped{}, DeterministicBalanced{}} {
		rows := mustSubsets(t, a, Shape{Frontends: 300, Backends: Dense(300), Size: 10})
		for task, c := range Connections(rows, Dense(300)) {
			if c != 10 {
				t.Errorf("%s: backend %d has %d connections, want 10", a.Name(), task, c)
			}
		}
	}
}

// SRE book, figures 20-3 and 20-4: how uneven random subsetting is for 300
// clients of 300 backends. The book gives the least and the most loaded backend
// of one run each (.63 and 1.21 of the average for k = 90, .5 and 1.5 for
// k = 30) and says that runs vary; here the mean over ten runs.
func TestRandomSREBookImbalance(t *testing.T) {
	for _, c := range []struct {
		k           int
		least, most float64 // of the average
	}{{90, .74, 1.26}, {30, .5, 1.5}} {
		var least, most float64
		for seed := range uint64(10) {
			rows := mustSubsets(t, Random{Seed: seed}, Shape{Frontends: 300, Backends: Dense(300), Size: c.k})
			counts := Connections(rows, Dense(300))
			least += float64(slices.Min(counts)) / float64(c.k) / 10
			most += float64(slices.Max(counts)) / float64(c.k) / 10
		}
		if math.Abs(least-c.least) > .05 || math.Abs(most-c.most) > .05 {
			t.Errorf("k = %d: least %.3f, most %.3f of the average, want about %v and %v", c.k, least, most, c.least, c.most)
		}
	}
}
