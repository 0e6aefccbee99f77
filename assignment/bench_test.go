package assignment_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

func benchAssignment(tb testing.TB, n, tasks int) *assignment.Assignment {
	tb.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	ts := make([]assignment.Task, tasks)
	for i := range ts {
		ts[i] = assignment.Task{Name: fmt.Sprintf("cache-%d", i), Incarnation: rng.Uint64() | 1, Address: fmt.Sprintf("10.0.%d.%d:8080", i>>8, i&255), Zone: "zone-a", Index: uint32(i), Weight: 1, State: assignment.TaskRunning}
	}
	c := assignment.Columns{Starts: make([]assignment.SliceKey, n), Owners: make([]uint32, n)}
	for i := range n {
		c.Owners[i] = uint32(rng.IntN(tasks))
		if i > 0 {
			c.Starts[i] = assignment.SliceKey(rng.Uint64() >> 1)
		}
	}
	slices.Sort(c.Starts)
	a, err := assignment.New(assignment.Header{Job: "bench", StoreID: 7, Generation: 1_760_000_000_000}, ts, c)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func BenchmarkLookup(b *testing.B) {
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprintf("user/%011d", i)
	}
	for _, n := range []int{10, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("slices=%d", n), func(b *testing.B) {
			a := benchAssignment(b, n, min(n, 1000))
			b.ReportAllocs()
			i, sum := 0, 0
			for b.Loop() {
				sum += a.Lookup(assignment.KeyOf(keys[i&(1<<16-1)])).Len()
				i++
			}
			if sum != i {
				b.Fatal(sum)
			}
		})
	}
}
