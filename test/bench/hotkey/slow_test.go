package hotkey

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// BenchmarkSlow: of four servers that are asked for half of what they can do one becomes 20 times
// as slow, so that it answers nothing in time. It reports, by second, what share of the requests
// is answered for the keys that it owned until then: with two replicas from the fifth second on
// 95 % or more, with one again from the 30th.
//
//	go test ./test/bench/hotkey -run '^$' -bench Slow -benchtime 1x
func BenchmarkSlow(b *testing.B) {
	for _, replicas := range []int{1, 2} {
		b.Run(fmt.Sprint("replicas=", replicas), func(b *testing.B) {
			for b.Loop() {
				f := newFleet(b, assignment.JobConfig{MinReplicas: replicas, MaxReplicas: replicas}.WithDefaults())
				ck, ask := newClerk(b, f), viaGRPC(b, f)
				keys, slow := make([]string, 200), "hot-0"
				for i := range keys {
					keys[i] = fmt.Sprint("key ", i)
				}
				owned := func(key string) bool {
					owners := ck.Lookup(key)
					for i := range owners.Len() {
						if owners.At(i).Name == slow {
							return true
						}
					}
					return false
				}
				var its []string // keys of the slow server
				for _, key := range keys {
					if owned(key) {
						its = append(its, key)
					}
				}
				const before, after = 10, 45 // seconds
				var mu sync.Mutex
				var calls sync.WaitGroup
				var all, served [before + after]int
				begin := time.Now()
				for i := 0; ; i++ {
					at := time.Duration(i) * time.Second / (servers * slots / 2 * time.Duration(time.Second/takes))
					second := int(at / time.Second)
					if second >= before+after {
						break
					}
					time.Sleep(at - time.Since(begin))
					if second >= before && f.slow.Load() == nil {
						f.slow.Store(&slow)
					}
					key := keys[i%len(keys)]
					calls.Go(func() {
						ctx, cancel := context.WithTimeout(context.Background(), deadline)
						defer cancel()
						err := ask(ctx, key)
						if !slices.Contains(its, key) {
							return
						}
						mu.Lock()
						defer mu.Unlock()
						if all[second]++; err == nil {
							served[second]++
						}
					})
				}
				calls.Wait()
				left := 0
				for _, key := range its {
					if owned(key) {
						left++
					}
				}
				share := func(from, to int) float64 {
					n, of := 0, 0
					for i := from; i < to; i++ {
						n, of = n+served[before+i], of+all[before+i]
					}
					return float64(n) / float64(max(of, 1))
				}
				b.Logf("%d keys of %d, of which it owns %d in the end; served of those asked for, by second: %v of %v", len(its), len(keys), left, served[before:], all[before:])
				b.ReportMetric(share(0, 5), "first-5s")
				b.ReportMetric(share(5, 15), "5s-to-15s")
				b.ReportMetric(share(30, after), "from-30s")
				b.ReportMetric(float64(left)/float64(len(its)), "still-owned")
			}
		})
	}
}
