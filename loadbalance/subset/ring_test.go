package subset

import (
	"math/bits"
	"slices"
	"testing"
)

// The walk, its two ways to seek and its rank, against sorting, for every n.
func TestRing(t *testing.T) {
	for n := 1; n <= 130; n++ {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		order = byKey(order, func(i int) uint64 { return bits.Reverse64(uint64(i)) })

		walk := newRing(n)
		for round := range 2 {
			for rank, i := range order {
				if got := walk.next(); got != i {
					t.Fatalf("n = %d, round %d: place %d is %d, want %d", n, round, rank, got, i)
				}
			}
		}
		for rank, i := range order {
			if got := ringRank(i, n); got != rank {
				t.Fatalf("n = %d: rank of %d is %d, want %d", n, i, got, rank)
			}
			walk.seekRank(rank)
			if got := walk.next(); got != i {
				t.Fatalf("n = %d: rank %d is %d, want %d", n, rank, got, i)
			}
		}
		for m := range 300 {
			at, _ := slices.BinarySearchFunc(order, turn(m), func(i int, at uint64) int {
				if turn(i) < at {
					return -1
				}
				return 1
			})
			walk.seekTurn(turn(m))
			if got, want := walk.next(), order[at%n]; got != want {
				t.Fatalf("n = %d: frontend %d meets %d first, want %d", n, m, got, want)
			}
		}
	}
}

// The rotation is exact where floating point would round.
func TestRotation(t *testing.T) {
	for _, c := range []struct{ m, n, want int }{
		{0, 1, 0}, {1, 1, 0}, {0, 6, 0}, {1, 6, 3}, {2, 6, 2}, {3, 6, 5}, {4, 6, 1},
		{1, 7, 4},
		{MaxTasks - 1, 3, 0},       // just short of a whole turn
		{1 << 23, MaxTasks, 1},     // exactly one place
		{1 << 23, MaxTasks - 1, 1}, // just under it
		{MaxTasks - 1, MaxTasks, MaxTasks - 1},
	} {
		if got := rotation(c.m, c.n); got != c.want {
			t.Errorf("rotation(%d, %d) = %d, want %d", c.m, c.n, got, c.want)
		}
	}
}
