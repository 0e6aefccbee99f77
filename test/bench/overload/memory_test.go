package overload

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/onecore"
)

var memoryLimit = flag.String("memory.limit", "48MiB", "BenchmarkMemory: GOMEMLIMIT of the servers that have one")

// BenchmarkMemory is the most memory that a server of one core has resident while it is asked
// for ten times what it can do, of that at .9 times, with and without GOMEMLIMIT, with requests
// of one byte and of 4 KiB, by clients that know nothing of Slicer: 1.5 is the limit. Beside it,
// a server without admission. Each is a process of its own, which has to be alive in the end.
//
//	go test ./test/bench/overload -run '^$' -bench Memory -benchtime 1x -phase 60s -timeout 60m
func BenchmarkMemory(b *testing.B) {
	onecore.Apart(b)
	plane := bed.Start(b, bed.Config{})
	cfg := assignment.JobConfig{Name: "job", Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOn}}
	if err := plane.PutJob(b.Context(), cfg.WithDefaults()); err != nil {
		b.Fatal(err)
	}
	const takes = 2 * time.Millisecond
	for _, size := range []int{1, 4 << 10} {
		for _, x := range []struct{ name, limit string }{{"on", ""}, {"on with GOMEMLIMIT", *memoryLimit}, {"nothing", ""}} {
			b.Run(fmt.Sprintf("bytes=%d/admission=%s", size, strings.ReplaceAll(x.name, " ", "-")), func(b *testing.B) {
				all := figures{}
				for round := range *rounds {
					resident := map[float64]int64{}
					for _, times := range []float64{.9, 10} {
						s := spec{Burns: takes}
						if x.name != "nothing" {
							s = spec{Job: "job", Task: "task", Distributor: plane.Addrs()[0], Burns: takes}
						}
						var env []string
						if x.limit != "" {
							env = append(env, "GOMEMLIMIT="+x.limit)
						}
						c := s.start(b, env...)
						served := c.offer(b, uint64(round), times/takes.Seconds(), size)
						resident[times] = c.MostMemory(b)
						all.add(fmt.Sprint(times, "x-MiB"), float64(resident[times])/(1<<20))
						all.add(fmt.Sprint(times, "x-served"), served)
						c.Stop()
					}
					all.add("10x/.9x", float64(resident[10])/float64(resident[.9]))
				}
				all.report(b)
			})
		}
	}
}

// offer sends a server requests of the usual mix of criticalities at a rate for a phase, and
// returns what share was answered in time.
func (c *child) offer(b *testing.B, seed uint64, rate float64, size int) (share float64) {
	b.Helper()
	l := load{mixed: true, in: strings.Repeat("x", size)}
	for range 8 {
		conn := c.plainConn(b, onecore.Labelled())
		defer conn.Close()
		l.stubs = append(l.stubs, hello.NewGreeterClient(conn))
	}
	return l.offer(seed, rate, *phase).sum(0).share()
}
