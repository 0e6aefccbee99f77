package ratelimit

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/test/examples/ratelimit/quota"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/process"
)

var (
	numLimits    = flag.Int("limits.limits", 100_000, "how many limits there are")
	numWide      = flag.Int("limits.wide", 10, "of how many more is asked for than is allowed, at all frontends")
	numOver      = flag.Int("limits.over", 1000, "of how many more is asked for than is allowed, at one to three frontends")
	numOwners    = flag.Int("limits.owners", 4, "how many servers there are")
	numFrontends = flag.Int("limits.frontends", 20, "how many frontends there are")
	rateEach     = flag.Float64("limits.rate", 20, "what a limit allows a second for each frontend at which it is asked for")
	timesEach    = flag.Float64("limits.times", 2, "how many times that is asked for")
	coldAll      = flag.Float64("limits.cold", 2000, "requests a second for all other limits together")
	calmFor      = flag.Duration("limits.calm", 15*time.Second, "how long nothing happens, before and after")
	killFor      = flag.Duration("limits.dead", 12*time.Second, "how long a killed server is dead")
)

// phases of the benchmark. A window counts for the last of them that it touches.
const (
	calm = iota
	restarts
	killed
	hot
	numPhases
)

var phaseNames = [numPhases]string{"calm", "rolling restart", "kill -9", "hot limit"}

// moment is when a phase begins.
type moment struct {
	phase int
	at    time.Time
}

// BenchmarkLimits runs servers and frontends as processes, asks for limits, restarts the
// servers in turn, kills one, and makes a limit hot. It prints what was let in over any 10 s,
// as a part of what is allowed.
func BenchmarkLimits(b *testing.B) {
	for b.Loop() {
		benchmarkLimits(b)
	}
}

func benchmarkLimits(b *testing.B) {
	l := load{Frontends: *numFrontends, Limits: *numLimits, Wide: *numWide, Over: *numOver, HotTimes: 10, Cold: *coldAll, Rate: *rateEach, Times: *timesEach}
	process.Build(b, "limits-server", "github.com/slicer-project/slicer/test/examples/ratelimit/server")
	plane := bed.Start(b, bed.Config{})
	if err := plane.PutJob(b.Context(), assignment.JobConfig{Name: Job, MaxReplicas: 1, WarmUp: assignment.NoWarmUp}.WithDefaults()); err != nil {
		b.Fatal(err)
	}
	slicer := plane.Addrs()[0]
	var servers []*process.Process
	for i := range *numOwners {
		task := fmt.Sprint("limits-", i)
		servers = append(servers, process.Start(b, task, nil, process.Program("limits-server"), "--task", task, "--slicer", slicer))
	}
	time.Sleep(3 * time.Second)
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	start := time.Now()
	var frontends []*process.Process
	for i := range l.Frontends {
		text, err := json.Marshal(work{load: l, Index: i, Slicer: slicer, Start: start, Out: filepath.Join(dir, fmt.Sprint(i))})
		if err != nil {
			b.Fatal(err)
		}
		frontends = append(frontends, process.Start(b, fmt.Sprint("frontend-", i), []string{frontendVariable + "=" + string(text)}, self))
	}
	var moments []moment
	begins := func(phase int) { moments = append(moments, moment{phase, time.Now()}) }
	time.Sleep(10 * time.Second) // until what a start leaves behind has gone
	begins(calm)
	time.Sleep(*calmFor)
	begins(restarts)
	for _, s := range servers {
		began := time.Now()
		s.End(time.Minute)
		took := time.Since(began)
		s.Restart()
		time.Sleep(3 * time.Second) // the fleet goes on with the next when this is ready
		fmt.Printf("%s drained within %.1f s\n", s.Name, took.Seconds())
	}
	begins(calm)
	time.Sleep(*calmFor)
	begins(killed)
	servers[0].Kill()
	time.Sleep(*killFor)
	servers[0].Restart()
	time.Sleep(3 * time.Second)
	begins(calm)
	time.Sleep(*calmFor)
	begins(hot)
	for _, f := range frontends {
		f.Signal(syscall.SIGUSR1)
	}
	time.Sleep(*calmFor)
	ended := time.Now()
	var results []result
	for _, f := range frontends {
		f.Signal(syscall.SIGTERM)
	}
	for i, f := range frontends {
		f.End(time.Minute)
		data, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			b.Fatal(err)
		}
		var r result
		if err := json.Unmarshal(data, &r); err != nil {
			b.Fatal(err)
		}
		results = append(results, r)
	}
	report(b, l, results, start, moments, ended)
}

// report prints what was let in.
func report(b *testing.B, l load, results []result, start time.Time, moments []moment, ended time.Time) {
	all := make(map[int]*counts)
	var sum result
	for _, r := range results {
		for limit, c := range r.Counts {
			if all[limit] == nil {
				all[limit] = &counts{}
			}
			all[limit].join(c)
		}
		sum.Cold, sum.ColdDenied = sum.Cold+r.Cold, sum.ColdDenied+r.ColdDenied
		sum.Decisions, sum.Errors = sum.Decisions+r.Decisions, sum.Errors+r.Errors
		sum.Late = max(sum.Late, r.Late)
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%d limits, %d of them asked for %g times what is allowed, %d servers, %d frontends\n", l.Limits, l.Wide+l.Over, l.Times, *numOwners, l.Frontends)
	fmt.Fprintf(&table, "let in over any 10 s, percent of what is allowed\n%-34s %9s %7s %7s %7s %7s %7s\n", "", "windows", "least", ".1%", "median", "99.9%", "most")
	for phase := range numPhases {
		for _, kind := range []struct {
			name string
			has  func(limit int) bool
		}{
			{"at 1 frontend", func(i int) bool { return i > l.Wide && l.frontends(i) == 1 }},
			{"at 2 or 3 frontends", func(i int) bool { return i > l.Wide && l.frontends(i) > 1 }},
			{"at all frontends", func(i int) bool { return i > 0 && i <= l.Wide }},
			{"the hot limit", func(i int) bool { return i == 0 }},
		} {
			parts := windows(l, all, start, moments, ended, phase, kind.has)
			if len(parts) == 0 {
				continue
			}
			slices.Sort(parts)
			at := func(q float64) float64 { return 100 * parts[int(q*float64(len(parts)-1))] }
			name := phaseNames[phase] + ", " + kind.name
			fmt.Fprintf(&table, "%-34s %9d %7.1f %7.1f %7.1f %7.1f %7.1f\n", name, len(parts), at(0), at(.001), at(.5), at(.999), at(1))
		}
	}
	fmt.Fprintf(&table, "of other limits %d of %d requests were not let in; %d decisions, %d errors; a frontend was not run for %d ms at most\n",
		sum.ColdDenied, sum.Cold, sum.Decisions, sum.Errors, sum.Late.Milliseconds())
	fmt.Print("\n", &table)
	if sum.Errors > 0 {
		b.Errorf("%d errors", sum.Errors)
	}
}

func (c *counts) join(other *counts) {
	for i := range other.Asked {
		if i == len(c.Asked) {
			c.Asked, c.Let = append(c.Asked, 0), append(c.Let, 0)
		}
		c.Asked[i] += other.Asked[i]
		c.Let[i] += other.Let[i]
	}
}

// windows are what was let in, as a part of what is allowed, of those limits and those windows
// of a phase in which more is asked for, from their begin to their end.
func windows(l load, all map[int]*counts, start time.Time, moments []moment, ended time.Time, phase int, has func(int) bool) (parts []float64) {
	const width = 10 * time.Second
	for limit, c := range all {
		if !has(limit) {
			continue
		}
		allowed := l.limit(limit).Rate * width.Seconds()
		for i := range len(c.Asked) - int(width/bin) {
			from := start.Add(time.Duration(i) * bin)
			if from.Before(moments[0].at) || from.Add(width).After(ended) || phaseOf(moments, from, from.Add(width)) != phase {
				continue
			}
			asked, let, first, last := 0, 0, 0, 0
			for j := i; j < i+int(width/bin); j++ {
				asked, let = asked+int(c.Asked[j]), let+int(c.Let[j])
				switch at := time.Duration(j-i) * bin; {
				case at < 2*time.Second:
					first += int(c.Asked[j])
				case at >= width-2*time.Second:
					last += int(c.Asked[j])
				}
			}
			if float64(asked) >= 1.2*allowed && float64(min(first, last)) >= .2*allowed {
				parts = append(parts, float64(let)/allowed)
			}
		}
	}
	return parts
}

// phaseOf is the last phase, in their order, that a window touches.
func phaseOf(moments []moment, from, to time.Time) (phase int) {
	for i, m := range moments {
		if m.at.Before(to) && (i+1 == len(moments) || moments[i+1].at.After(from)) {
			phase = max(phase, m.phase)
		}
	}
	return phase
}

// BenchmarkAllow is one decision, by all processors: of as many limits as one of 20 frontends
// has of 100,000, of all of them, and of one. What it costs to report them is in it.
func BenchmarkAllow(b *testing.B) {
	l := quota.Limit{Rate: 1000, Burst: 100}
	for _, n := range []int{1, 5000, 100_000} {
		b.Run(fmt.Sprint("limits=", n), func(b *testing.B) {
			c := unconnected(b)
			keys := make([]string, n)
			for i := range keys {
				keys[i] = fmt.Sprint("limit/", i)
				if _, err := c.Allow(keys[i], l, 1); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, err := c.Allow(keys[i%n], l, 1); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
