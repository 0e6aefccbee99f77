package cluster

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	seeds = flag.Int("seeds", 6, "how many `seeds` TestSeeds runs")
	first = flag.Uint64("seed", 1, "the `first` of them; 0 draws it from the clock")
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// TestSeeds runs many worlds, some at a time.
func TestSeeds(t *testing.T) {
	from := *first
	if from == 0 {
		from = uint64(time.Now().UnixNano()) >> 10 << 10
	}
	began := time.Now()
	var next, events, writes atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(*seeds) && !t.Failed(); i = next.Add(1) - 1 {
				seed := from + uint64(i)
				w, wrong := live(seed, usualSize)
				if wrong != "" {
					t.Errorf("seed %d: %s\n\nRepeat it:\n  go test ./test/cluster -run TestSeeds -seeds 1 -seed %d\n\nWhat happened before:\n%s", seed, wrong, seed, last(w.trace))
				}
				events.Add(int64(w.events))
				writes.Add(int64(w.check.writes))
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	hours := float64(*seeds) * (beginning + suffering + calm).Hours()
	t.Logf("seeds from %d: %.1f simulated hours of %d tasks in %.1f s (%.0f hours a minute), %d events, %d generations",
		from, hours, usualSize.slicelets, took.Seconds(), hours/took.Minutes(), events.Load(), writes.Load())
}

func last(trace []string) string {
	return "  " + strings.Join(trace[max(0, len(trace)-maxTrace):], "\n  ")
}

// The same seed is the same run.
func TestRepeats(t *testing.T) {
	run := func() string {
		w, wrong := live(12345, usualSize)
		sum := uint64(0)
		for g, s := range w.check.sums {
			sum += s ^ uint64(g)
		}
		return fmt.Sprintln(wrong, w.events, w.check.writes, sum, w.trace)
	}
	if a, b := run(), run(); a != b {
		t.Errorf("once\n%s\nand then\n%s", a, b)
	}
}
