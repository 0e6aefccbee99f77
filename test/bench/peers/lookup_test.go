package peers

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"

	"github.com/slicer-project/slicer/assignment"
)

var sizes = []int{10, 10_000, 1_000_000}

func newAssignment(tb testing.TB, n int) *assignment.Assignment {
	tb.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	tasks := make([]assignment.Task, min(n, 1000))
	for i := range tasks {
		tasks[i] = assignment.Task{Name: fmt.Sprintf("cache-%d", i), Incarnation: 1, Address: fmt.Sprintf("10.0.%d.%d:8080", i>>8, i&255), Index: uint32(i), Weight: 1, State: assignment.TaskRunning}
	}
	p := assignment.Placement{Starts: make([]assignment.SliceKey, n), Owners: make([]uint32, n)}
	for i := range n {
		p.Owners[i] = uint32(rng.IntN(len(tasks)))
		if i > 0 {
			p.Starts[i] = assignment.SliceKey(rng.Uint64() >> 1)
		}
	}
	slices.Sort(p.Starts)
	a, err := assignment.Successor(nil, assignment.Header{Job: "peers", Generation: 1}, tasks, p)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

type member string

func (m member) String() string { return string(m) }

type hasher struct{}

func (hasher) Sum64(data []byte) uint64 { return xxhash.Sum64(data) }

func newConsistent(n int) *consistent.Consistent {
	members := make([]consistent.Member, min(n, 1000))
	for i := range members {
		members[i] = member(fmt.Sprintf("cache-%d", i))
	}
	return consistent.New(members, consistent.Config{Hasher: hasher{}, PartitionCount: n, ReplicationFactor: 20, Load: 1.25})
}

// search is what Assignment.Find does, by binary search.
func search(starts []assignment.SliceKey, k assignment.SliceKey) int {
	return sort.Search(len(starts), func(i int) bool { return starts[i] > k }) - 1
}

// keys makes a new 16-byte key at each call, in the same place.
func keys() func() []byte {
	key := []byte("user/00000000000")
	n := uint64(0)
	return func() []byte {
		binary.LittleEndian.PutUint64(key[8:], n)
		n++
		return key
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range sizes {
		a := newAssignment(b, n)
		b.Run(fmt.Sprintf("slicer/slices=%d", n), func(b *testing.B) {
			next := keys()
			b.ReportAllocs()
			for b.Loop() {
				if a.Lookup(assignment.KeyOfBytes(next())).Position(0) < 0 {
					b.Fatal("nobody")
				}
			}
		})
		starts, owners := a.Columns().Starts, a.Columns().Owners
		b.Run(fmt.Sprintf("sortSearch/slices=%d", n), func(b *testing.B) {
			next := keys()
			b.ReportAllocs()
			for b.Loop() {
				if int(owners[search(starts, assignment.KeyOfBytes(next()))]) < 0 {
					b.Fatal("nobody")
				}
			}
		})
		c := newConsistent(n)
		b.Run(fmt.Sprintf("buraksezer/slices=%d", n), func(b *testing.B) {
			next := keys()
			b.ReportAllocs()
			for b.Loop() {
				if c.LocateKey(next()) == nil {
					b.Fatal("nobody")
				}
			}
		})
	}
}

// What is compared does the same thing: Slicer's index finds what binary search
// finds, and the peer knows an owner for every key.
func TestPeersAgree(t *testing.T) {
	for _, n := range sizes[:2] {
		a, c, next := newAssignment(t, n), newConsistent(n), keys()
		starts := a.Columns().Starts
		for range 100_000 {
			key := next()
			k := assignment.KeyOfBytes(key)
			if got, want := a.Find(k), search(starts, k); got != want {
				t.Fatalf("key %s is found in slice %d, want %d", k, got, want)
			}
			if c.LocateKey(key) == nil {
				t.Fatalf("key %s has no owner", k)
			}
		}
	}
}
