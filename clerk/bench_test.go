package clerk

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/test/kit/balanced"
)

// benchClerk has an assignment of about n slices that the balancer has made, and no stream.
func benchClerk(b *testing.B, n int) (*Clerk, []string) {
	rng := rand.New(rand.NewPCG(1, 2))
	if balancedJobs[n] == nil {
		balancedJobs[n] = balanced.New(b, n).Assignment()
	}
	c := &Clerk{tally: newTally(), throttles: newThrottles("job", 0)}
	c.newest.Store(balancedJobs[n])
	keys := make([]string, 1<<12)
	for i := range keys {
		keys[i] = fmt.Sprintf("user/%011d", rng.Int64N(1e11))
	}
	return c, keys
}

var balancedJobs = map[int]*assignment.Assignment{} // by n

// BenchmarkLookup hashes a key of 16 bytes, finds its owner and counts that.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{10, 10_000, 1_000_000} {
		c, keys := benchClerk(b, n)
		b.Run(fmt.Sprintf("slices=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if c.Lookup(keys[i&(1<<12-1)]).Len() == 0 {
					b.Fatal("no owner")
				}
			}
		})
		for _, p := range []int{1, 8} {
			b.Run(fmt.Sprintf("slices=%d/goroutines=%dxcores", n, p), func(b *testing.B) {
				b.SetParallelism(p)
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						if c.Lookup(keys[i&(1<<12-1)]).Len() == 0 {
							b.Error("no owner")
						}
					}
				})
			})
		}
	}
}

// BenchmarkTally is what counting costs of it.
func BenchmarkTally(b *testing.B) {
	t := newTally()
	for b.Loop() {
		t.found()
	}
}

// BenchmarkGroup groups 1,000 keys of 16 bytes; tasks that own none of them cost nothing.
func BenchmarkGroup(b *testing.B) {
	for _, n := range []int{20, 10_000, 1_000_000} {
		c, keys := benchClerk(b, n)
		b.Run(fmt.Sprintf("slices=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if g := c.Group(keys[:1000]); len(g.ByTask) == 0 {
					b.Fatal("no owner")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/key")
		})
	}
}
