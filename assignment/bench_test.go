package assignment_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/test/kit/balanced"
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

// BenchmarkLookup hashes a 16-byte key and looks it up. No key comes twice, so
// that at 10^6 slices memory is as cold as it is for real traffic. Patched is what has come of
// twenty deltas of 100 slices, ten of them split.
func BenchmarkLookup(b *testing.B) {
	lookup := func(b *testing.B, a *assignment.Assignment) {
		key := []byte("user/00000000000")
		b.ReportAllocs()
		i, sum := uint64(0), 0
		for b.Loop() {
			binary.LittleEndian.PutUint64(key[8:], i)
			r := a.Lookup(assignment.KeyOfBytes(key))
			sum += r.Position(0)
			i++
		}
		if sum < 0 {
			b.Fatal(sum)
		}
	}
	for _, n := range []int{10, 10_000, 100_000, 1_000_000} {
		a := benchAssignment(b, n, min(n, 1000))
		b.Run(fmt.Sprintf("slices=%d", n), func(b *testing.B) { lookup(b, a) })
		if n < assignment.PartFrom {
			continue
		}
		patched := a
		for i := range uint64(20) {
			next := withChanges(b, a, 100, 10, i)
			d, err := assignment.Diff(a, next)
			if err != nil {
				b.Fatal(err)
			}
			if patched, err = assignment.Apply(patched, d); err != nil {
				b.Fatal(err)
			}
			a = next
		}
		b.Run(fmt.Sprintf("slices=%d/patched", n), func(b *testing.B) { lookup(b, patched) })
	}
}

// benchPair are two generations of 10^5 slices on 1000 tasks, of which one
// percent have moved.
func benchPair(b *testing.B) (base, next *assignment.Assignment) {
	b.Helper()
	base = benchAssignment(b, 100_000, 1000)
	rng := rand.New(rand.NewPCG(2, 2))
	c := base.Columns()
	p := assignment.Placement{Starts: slices.Clone(c.Starts), Owners: slices.Clone(c.Owners)}
	for range 1000 {
		p.Owners[rng.IntN(len(p.Owners))] = uint32(rng.IntN(1000))
	}
	next, err := assignment.Successor(base, successorHeader(base), tasksOf(base), p)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	return base, next
}

func successorHeader(a *assignment.Assignment) assignment.Header {
	h := a.Header()
	h.Generation += 5000
	return h
}

func BenchmarkNew(b *testing.B) {
	_, next := benchPair(b)
	h, tasks, c := next.Header(), tasksOf(next), next.Columns()
	for b.Loop() {
		if _, err := assignment.New(h, tasks, c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSuccessor(b *testing.B) {
	base, next := benchPair(b)
	h, tasks, c := successorHeader(base), tasksOf(base), next.Columns()
	for b.Loop() {
		if _, err := assignment.Successor(base, h, tasks, assignment.Placement{Starts: c.Starts, Owners: c.Owners}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDelta is what a subscriber does with a delta of 100 slices of an assignment that the
// balancer made, and a Distributor to make it: of slices that change owners alone, and of which one
// in ten is split and another merged into the one before. Beside it is a copy of the columns. Row is
// a delta of many, each on what came of the one before, as they come in the life of a job.
func BenchmarkDelta(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("slices=%d", n), func(b *testing.B) {
			base := balanced.NewOf(b, n, 2000).Assignment()
			c := base.Columns()
			b.Run("copy", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, _, _, _ = slices.Clone(c.Starts), slices.Clone(c.Offsets), slices.Clone(c.Owners), slices.Clone(c.Since)
				}
			})
			for _, change := range []struct {
				name  string
				oneIn int
			}{{"moves", 0}, {"splits", 10}} {
				name, next := change.name, withChanges(b, base, 100, change.oneIn, 2)
				d, err := assignment.Diff(base, next)
				if err != nil {
					b.Fatal(err)
				}
				b.Run("Apply/"+name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if _, err := assignment.Apply(base, d); err != nil {
							b.Fatal(err)
						}
					}
				})
				b.Run("ApplyAndSum/"+name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if a, err := assignment.Apply(base, d); err != nil || a.DeltaSum() != next.DeltaSum() {
							b.Fatal(err)
						}
					}
				})
				b.Run("ApplyAndChecksum/"+name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if a, err := assignment.Apply(base, d); err != nil || a.Checksum() != next.Checksum() {
							b.Fatal(err)
						}
					}
				})
				b.Run("Row/"+name, func(b *testing.B) {
					row := make([]*assignment.Delta, 150)
					at := base
					for i := range row {
						next := withChanges(b, at, 100, change.oneIn, uint64(i))
						if row[i], err = assignment.Diff(at, next); err != nil {
							b.Fatal(err)
						}
						at = next
					}
					b.ReportAllocs()
					for i, a := 0, base; b.Loop(); i++ {
						if i%len(row) == 0 {
							a = base
						}
						if a, err = assignment.Apply(a, row[i%len(row)]); err != nil || a.DeltaSum() == 0 {
							b.Fatal(err)
						}
					}
				})
				b.Run("Diff/"+name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if _, err := assignment.Diff(base, next); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}

// withChanges is the successor in which so many slices have another owner, of which one in so many
// is also split, and as many are merged into the one before.
func withChanges(b testing.TB, base *assignment.Assignment, n, oneIn int, seed uint64) *assignment.Assignment {
	b.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	changed := map[int]int{}
	for i := range n {
		changed[1+rng.IntN(base.NumSlices()-1)] = i
	}
	var p assignment.Placement
	for i := range base.NumSlices() {
		s, r := base.Slice(i), base.Replicas(i)
		k, ok := changed[i]
		if ok && oneIn > 0 && k%oneIn == 0 {
			continue
		}
		owners := make([]uint32, r.Len())
		for j := range owners {
			owners[j] = uint32(r.Position(j))
		}
		if ok {
			owners[0] = (owners[0] + 1 + uint32(rng.IntN(100))) % uint32(base.NumTasks())
			for slices.Contains(owners[1:], owners[0]) {
				owners[0] = (owners[0] + 1) % uint32(base.NumTasks())
			}
		}
		p.Add(s.Start, owners...)
		if mid := s.Start + (s.End-s.Start)/2; ok && oneIn > 0 && k%oneIn == 1 && mid > s.Start {
			p.Add(mid, owners...)
		}
	}
	next, err := assignment.Successor(base, successorHeader(base), tasksOf(base), p)
	if err != nil {
		b.Fatal(err)
	}
	return next
}

// BenchmarkPart cuts one task's part of 100 slices, with its moves and what it held before, as a
// Distributor does for each slicelet of each generation, and sums it up.
func BenchmarkPart(b *testing.B) {
	base, next := benchPair(b)
	before, after := assignment.NewCut(base), assignment.NewCut(next)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		part, _ := after.Since(before, next.Task(i%next.NumTasks()).Name)
		part.Checksum()
	}
}

// The checksum is computed once an assignment, so each turn builds one: take
// BenchmarkNew off.
func BenchmarkNewAndChecksum(b *testing.B) {
	_, next := benchPair(b)
	h, tasks, c := next.Header(), tasksOf(next), next.Columns()
	for b.Loop() {
		a, err := assignment.New(h, tasks, c)
		if err != nil || a.Checksum() != next.Checksum() {
			b.Fatal(err)
		}
	}
}
