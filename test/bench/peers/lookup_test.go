package peers

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"
	"unsafe"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/kit/balanced"
)

var sizes = []int{10, 10_000, 100_000, 1_000_000}

// tasks is how many share n slices.
func tasks(n int) int { return min(n, max(n/100, 2)) }

type member string

func (m member) String() string { return string(m) }

type hasher struct{}

func (hasher) Sum64(data []byte) uint64 { return xxhash.Sum64(data) }

func newConsistent(n int) *consistent.Consistent {
	members := make([]consistent.Member, tasks(n))
	for i := range members {
		members[i] = member(fmt.Sprintf("cache-%d", i))
	}
	return consistent.New(members, consistent.Config{Hasher: hasher{}, PartitionCount: n, ReplicationFactor: 20, Load: 1.25})
}

// first is one owner of each slice.
func first(a *assignment.Assignment) []uint32 {
	owners := make([]uint32, a.NumSlices())
	for i := range owners {
		owners[i] = uint32(a.Replicas(i).Position(0))
	}
	return owners
}

// search is what Assignment.Find does, by binary search.
func search(starts []assignment.SliceKey, k assignment.SliceKey) int {
	return sort.Search(len(starts), func(i int) bool { return starts[i] > k }) - 1
}

// job is of about n slices, made once.
func job(tb testing.TB, n int) *assignment.Assignment {
	tb.Helper()
	if jobs[n] == nil {
		jobs[n] = balanced.New(tb, n).Assignment()
	}
	return jobs[n]
}

var jobs = map[int]*assignment.Assignment{}

// Of each turn the first lookups are not timed: they bring back into the caches what the other
// kinds have put out of them. As many as there are slices reach all that a kind reads, and none has
// an advantage from what the kind before it has read.
const (
	turn   = 20_000
	warmUp = 5_000
)

// key is made anew for each lookup, in the same place.
type key struct {
	n     uint64
	bytes [16]byte
}

func (k *key) next() string {
	k.n++
	binary.LittleEndian.PutUint64(k.bytes[8:], k.n)
	return unsafe.String(&k.bytes[0], len(k.bytes))
}

// BenchmarkLookup times the kinds in turns, so that whatever else the machine does meets all of
// them, and reports the medians, and that of Clerk.Lookup as a share of the others'.
func BenchmarkLookup(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("slices=%d", n), func(b *testing.B) {
			a := job(b, n)
			c, err := clerk.New(clerk.Config{Job: a.Job(), Static: a})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			starts, owners, ring := a.Columns().Starts, first(a), newConsistent(n)
			kinds := []struct {
				name string
				turn func(k *key, n int) (sum int)
				took []float64 // ns a lookup
			}{
				{name: "clerk", turn: func(k *key, n int) (sum int) {
					for range n {
						sum += c.Lookup(k.next()).Position(0)
					}
					return sum
				}},
				{name: "assignment", turn: func(k *key, n int) (sum int) {
					for range n {
						sum += a.Lookup(assignment.KeyOf(k.next())).Position(0)
					}
					return sum
				}},
				{name: "sort.Search", turn: func(k *key, n int) (sum int) {
					for range n {
						sum += int(owners[search(starts, assignment.KeyOf(k.next()))])
					}
					return sum
				}},
				{name: "buraksezer", turn: func(k *key, n int) (sum int) {
					for range n {
						k.next()
						if ring.LocateKey(k.bytes[:]) != nil {
							sum++
						}
					}
					return sum
				}},
			}
			var k key
			copy(k.bytes[:], "user/")
			b.ReportAllocs()
			for turns := 0; b.Loop(); turns++ {
				for i := range kinds {
					i = (i + turns) % len(kinds) // none always comes first
					kinds[i].turn(&k, max(warmUp, n))
					began := time.Now()
					if kinds[i].turn(&k, turn) < 0 {
						b.Fatal(kinds[i].name)
					}
					kinds[i].took = append(kinds[i].took, float64(time.Since(began).Nanoseconds())/turn)
				}
			}
			for i := range kinds {
				slices.Sort(kinds[i].took)
				median := kinds[i].took[len(kinds[i].took)/2]
				b.ReportMetric(median, kinds[i].name+"-ns")
				if i > 0 {
					b.ReportMetric(kinds[0].took[len(kinds[0].took)/2]/median, "of-"+kinds[i].name)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// What is compared does the same thing: Slicer's index finds what binary search
// finds, and the peer knows an owner for every key.
func TestPeersAgree(t *testing.T) {
	for _, n := range sizes[:2] {
		a, c, next := job(t, n), newConsistent(n), key{}
		starts := a.Columns().Starts
		for range 100_000 {
			key := next.next()
			k := assignment.KeyOf(key)
			if got, want := a.Find(k), search(starts, k); got != want {
				t.Fatalf("key %s is found in slice %d, want %d", k, got, want)
			}
			if c.LocateKey([]byte(key)) == nil {
				t.Fatalf("key %s has no owner", k)
			}
		}
	}
}
