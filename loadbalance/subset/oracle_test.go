package subset

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// The oracles of this file build everything that an algorithm's description
// mentions (whole shuffles, whole tables, sorted circles) and then select. They
// share with the package only the frozen generator and shuffle.

// ask is an oracle's view of a question.
type ask struct {
	m, frontends int
	tasks        []int // present, ascending
	span         int
	k            int
}

// oracle answers with the whole order of preference, or with the subset.
func oracle(a Algorithm, q ask) []int {
	n := len(q.tasks)
	k := min(q.k, n)
	switch a := a.(type) {
	case Random:
		deck := slices.Clone(q.tasks)
		r := fork(a.Seed, uint64(q.m))
		shuffle(&r, deck)
		return deck[:k]
	case RoundRobin:
		// Hand out one backend after the other, as the article's table 1 does.
		var out []int
		for i := q.m * k; len(out) < k; i++ {
			out = append(out, q.tasks[i%n])
		}
		return out
	case DeterministicDropped:
		round, hands := q.m/(n/k), n/k
		deck := slices.Clone(q.tasks)
		r := newRNG(uint64(round))
		shuffle(&r, deck)
		return deck[q.m%hands*k:][:k]
	case DeterministicBalanced:
		round, hands := q.m/(n/k), n/k
		out := map[int]bool{}
		for i := range n % k {
			out[q.tasks[(round*(n%k)+i)%n]] = true
		}
		deck := slices.DeleteFunc(slices.Clone(q.tasks), func(t int) bool { return out[t] })
		r := newRNG(uint64(round))
		shuffle(&r, deck)
		return deck[q.m%hands*k:][:k]
	case Consistent:
		from := fork(a.Seed, 0).at(uint64(q.m))
		return byKey(q.tasks, func(t int) uint64 { return fork(a.Seed, 1).at(uint64(t)) - from })[:k]
	case Rendezvous:
		seed := newRNG(a.Seed).at(uint64(q.m))
		return byKey(q.tasks, func(t int) uint64 {
			d := xxhash.NewWithSeed(seed)
			d.Write(binary.LittleEndian.AppendUint64(nil, uint64(t)))
			return d.Sum64()
		})[:k]
	case Ringsteady:
		return rotate(a.Scaling, q.m, q.frontends, q.tasks)[:k]
	case Rocksteadier:
		return tableOrder(cmpOr(a.Lot, DefaultLot), q)[:k]
	}
	panic(fmt.Sprintf("no oracle for %T", a))
}

func cmpOr(x, otherwise int) int {
	if x == 0 {
		return otherwise
	}
	return x
}

func byKey(tasks []int, key func(int) uint64) []int {
	out := slices.Clone(tasks)
	sort.Slice(out, func(i, j int) bool { return key(out[i]) < key(out[j]) })
	return out
}

// rotate sorts tasks round the circle, the first that frontend m meets in front.
func rotate(scaling Scaling, m, frontends int, tasks []int) []int {
	position := func(t int) uint64 { return bits.Reverse64(uint64(t)) }
	sorted := byKey(tasks, position)
	n := int64(len(tasks))
	turns := new(big.Rat).SetFrac(new(big.Int).SetUint64(position(m)), new(big.Int).Lsh(big.NewInt(1), 64))
	first := 0
	switch scaling {
	case RawPositions:
		for first < len(sorted) && position(sorted[first]) < position(m) {
			first++
		}
	case BothScaled:
		rank := int64(0)
		for other := range frontends {
			if position(other) < position(m) {
				rank++
			}
		}
		turns.SetFrac64(rank, int64(frontends))
		fallthrough
	case BackendScaled:
		// The first multiple of 1/n at or after turns.
		for big.NewRat(int64(first), n).Cmp(turns) < 0 {
			first++
		}
	}
	first %= len(sorted)
	return append(slices.Clone(sorted[first:]), sorted[:first]...)
}

// tableOrder builds the whole table of a frontend lot, as the article's tables
// 2 to 5 do, and reads it from the frontend's row.
func tableOrder(lot int, q ask) []int {
	var lots []int
	for i := 0; i*lot < q.span; i++ {
		lots = append(lots, i)
	}
	var columns [][]int
	for _, l := range rotate(BackendScaled, q.m/lot, 0, lots) {
		var column []int
		for i := range lot {
			column = append(column, l*lot+i)
		}
		r := fork(uint64(q.m/lot), uint64(l))
		shuffle(&r, column)
		columns = append(columns, column)
	}
	rows := make([]int, lot)
	for i := range rows {
		rows[i] = i
	}
	start := slices.Index(byKey(rows, func(i int) uint64 { return bits.Reverse64(uint64(i)) }), q.m%lot)
	var out []int
	for row := range lot {
		for _, column := range columns {
			if t := column[(start+row)%lot]; slices.Contains(q.tasks, t) {
				out = append(out, t)
			}
		}
	}
	return out
}

// forSeeds runs f as a subtest for each of n seeds, whose names print them.
// SUBSET_SEED=s runs the one seed s instead, to replay a failure or to explore.
func forSeeds(t *testing.T, n int, f func(t *testing.T, r *rand.Rand)) {
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = uint64(i + 1)
	}
	if env := os.Getenv("SUBSET_SEED"); env != "" {
		s, err := strconv.ParseUint(env, 10, 64)
		if err != nil {
			t.Fatalf("SUBSET_SEED: %v", err)
		}
		seeds = []uint64{s}
	}
	for _, s := range seeds {
		t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) {
			f(t, rand.New(rand.NewPCG(s, 0)))
		})
	}
}

// variants is every algorithm, some with other than default parameters.
func variants() []Algorithm {
	return append(Algorithms(),
		Random{Seed: 9}, Consistent{Seed: 9}, Rendezvous{Seed: 9},
		Rocksteadier{Lot: 1}, Rocksteadier{Lot: 7}, Rocksteadier{Lot: 16}, Rocksteadier{Lot: MaxLot})
}

// label tells variants apart in messages.
func label(a Algorithm) string { return fmt.Sprintf("%s%+v", a.Name(), a) }

// randomAsk draws a question; about half of them have holes.
func randomAsk(r *rand.Rand) (ask, Backends) {
	n := 1 + r.IntN(1<<r.IntN(9))
	b := Dense(n)
	if r.IntN(2) == 0 {
		n += r.IntN(n + 1)
		b, _ = Present(r.Perm(n)[:1+r.IntN(n)])
	}
	q := ask{frontends: 1 + r.IntN(1<<r.IntN(12)), tasks: b.Append(nil), span: b.Span()}
	q.m = r.IntN(q.frontends)
	q.k = 1 + r.IntN(len(q.tasks)+3)
	return q, b
}

func TestAgainstOracle(t *testing.T) {
	forSeeds(t, 40, func(t *testing.T, r *rand.Rand) {
		for range 20 {
			q, b := randomAsk(r)
			s := Shape{Frontends: q.frontends, Backends: b, Size: q.k}
			for _, a := range variants() {
				got, err := a.Append(nil, s, q.m)
				if err != nil {
					t.Fatalf("%s %+v: %v", label(a), q, err)
				}
				if want := oracle(a, q); !slices.Equal(got, want) {
					t.Fatalf("%s %+v:\n got %v\nwant %v", label(a), q, got, want)
				}
			}
		}
	})
}
