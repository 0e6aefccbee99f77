package cluster

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/assignment/cputest"
	"github.com/slicer-project/slicer/assignment/seedtest"
)

var (
	seeds = flag.Int("seeds", seedtest.Cases(20), "how many `seeds` TestSeeds runs")
	first = flag.Uint64("seed", 1, "the `first` of them; 0 draws it from the clock")
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Worlds are small (some MB) and short-lived: less collecting is less work.
	debug.SetGCPercent(3000)
	goleak.VerifyTestMain(m)
}

// tally is what many worlds came to.
type tally struct {
	hours          float64 // simulated
	events, writes atomic.Int64
	took           time.Duration

	mu                      sync.Mutex
	sum                     uint64 // of when everything happened and of what was stored, in every world
	backup                  counts
	deaths                  deaths
	over                    overloads
	asked, attempts, floods int
}

func (c *counts) add(o counts) {
	c.outages, c.falls, c.back, c.taken = c.outages+o.outages, c.falls+o.falls, c.back+o.back, c.taken+o.taken
}

// runSeeds runs a world for each of n seeds, as many at a time as there are
// processors, until one of them finds something wrong.
func runSeeds(tb testing.TB, from uint64, n int) *tally {
	began := time.Now()
	t := &tally{hours: float64(n) * lifetime.Hours(), over: overloads{leastOfLimit: 1}}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && !tb.Failed(); i = next.Add(1) - 1 {
				seed := from + uint64(i)
				w, wrong := live(seed, usualSize)
				if wrong != "" {
					tb.Errorf("seed %d: %s\n\nRepeat it:\n  go test ./test/cluster -run TestSeeds -seeds 1 -seed %d\n\nWhat happened before:\n%s", seed, wrong, seed, last(w.trace))
				}
				t.events.Add(int64(w.events))
				t.writes.Add(int64(w.check.writes))
				t.mu.Lock()
				t.sum += w.sum()
				t.backup.add(w.check.backup)
				t.over.add(w.check.overload)
				t.asked, t.attempts, t.floods = t.asked+w.traffic.asked, t.attempts+w.traffic.attempts, t.floods+w.traffic.floods
				t.deaths.all, t.deaths.inTime = t.deaths.all+w.check.deaths.all, t.deaths.inTime+w.check.deaths.inTime
				t.mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.took = time.Since(began)
	return t
}

// sum is a checksum of when everything happened, and of what was stored.
func (w *world) sum() uint64 {
	sum := w.times
	for g, s := range w.check.sums {
		sum += s ^ uint64(g)
	}
	return sum
}

// TestSeeds runs many worlds.
func TestSeeds(t *testing.T) {
	from := *first
	if from == 0 {
		from = uint64(time.Now().UnixNano()) >> 10 << 10
	}
	r := runSeeds(t, from, *seeds)
	t.Logf("%d seeds from %d: %.1f simulated hours of %d tasks in %.1f s (%.0f hours a minute), %d events, %d generations, checksum %016x",
		*seeds, from, r.hours, usualSize.slicelets, r.took.Seconds(), r.hours/r.took.Minutes(), r.events.Load(), r.writes.Load(), r.sum)
	d := r.deaths
	t.Logf("%d slicelets died, %d of them with nothing else amiss for %s, by when they owned nothing", d.all, d.inTime, ownsDead)
	o := r.over
	t.Logf("%d requests in %d attempts: %d were refused, %d of them after all, and %d not sent; %d were served by tasks of which little was asked for long; %d were sent again",
		r.asked, r.attempts, o.refused+o.expired, o.expired, o.held, o.quiet, o.again)
	t.Logf("in %d floods of %d tasks, %d of these with nothing else amiss, which served %.2f of what they could in time", r.floods, o.floods, o.steady, o.goodput/float64(max(o.steady, 1)))
	t.Logf("%d windows of customers in which they were to get what they may: in %d that asked for more than their limit they got %.2f of it, %.2f at the least; of %d that asked for less %.4f was refused",
		o.allotted, o.overLimit, o.ofLimit/float64(max(o.overLimit, 1)), o.leastOfLimit, o.withinLimit, o.lost/float64(max(o.withinLimit, 1)))
	t.Logf("%d tasks drained, %d of them in order, and were sent %d requests meanwhile and %d afterwards", o.drains, o.drained, o.toDraining, o.turnedAway)
	b := r.backup
	t.Logf("in %d outages of all Distributors %d subscribers fell back to a Backup Distributor, took %d newer assignments from it, and came back %d times",
		b.outages, b.falls, b.taken, b.back)
	if *seeds >= 20 && !t.Failed() && d.inTime < d.all/10 {
		t.Error("hardly any task died with nothing else amiss")
	}
	if *seeds >= 20 && !t.Failed() && (b.falls < *seeds || b.taken < *seeds/2 || b.back < *seeds) {
		t.Error("the Backup Distributors were hardly used")
	}
}

// BenchmarkHours measures how much of a cluster's time is simulated in a minute on
// all processors, and in a minute of processor time, which says more where others
// compute, too.
func BenchmarkHours(b *testing.B) {
	const n = 100
	var hours float64
	var took time.Duration
	used := cputest.Own()
	for i := range b.N {
		r := runSeeds(b, uint64(1+i*n), n)
		hours, took = hours+r.hours, took+r.took
	}
	used = cputest.Own() - used
	b.ReportMetric(hours/took.Minutes(), "hours/min")
	b.ReportMetric(100, "limit-hours/min")
	b.ReportMetric(hours/used.Minutes(), "hours/cpu-min")
	b.ReportMetric(0, "ns/op")
}

func last(trace []string) string {
	return "  " + strings.Join(trace[max(0, len(trace)-maxTrace):], "\n  ")
}

// The same seed is the same run, to the nanosecond, whatever the order in which maps
// are gone through.
func TestRepeats(t *testing.T) {
	run := func(seed uint64) string {
		w, wrong := live(seed, usualSize)
		return fmt.Sprintln(wrong, w.events, w.check.writes, w.sum(), w.trace)
	}
	for _, seed := range []uint64{12345, 93} {
		first := run(seed)
		for range seedtest.Cases(3) {
			if again := run(seed); again != first {
				t.Errorf("seed %d: once\n%s\nand then\n%s", seed, first, again)
			}
		}
	}
}
