package judge

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/seedtest"
)

var seedFlag = flag.Uint64("judge.seed", 0, "seed of the runs; real processes run as they like all the same")

func seed(t *testing.T) uint64 {
	s := *seedFlag
	if s == 0 {
		s = seedtest.Seed(t)
	}
	t.Logf("-judge.seed=%d", s)
	return s
}

// small is a run that a plain go test can afford.
func small(seed uint64) plan {
	return plan{seed: seed, processes: 8, slicelets: 3, clients: 2, perSecond: 60, probes: 96, registers: 32,
		recycle: 12 * time.Second, think: 10 * time.Millisecond}
}

// findTime bounds the search for orders of the registers' operations.
const findTime = 2 * time.Minute

// run is a storm over a bed, and the verdict.
func run(t *testing.T, n network, p plan, lasts, pause time.Duration, kinds []fault) {
	setUp := time.Now()
	b := newBed(t, n, p)
	b.flows(60 * time.Second)
	t.Logf("set up in %.1f s", time.Since(setUp).Seconds())
	began := time.Now()
	counts := b.storm(lasts, pause, kinds)
	took, changes := time.Since(began), b.changed(began)
	calm := time.Now()
	b.flows(60 * time.Second)
	t.Logf("operations flow %.1f s after", time.Since(calm).Seconds())
	b.end()
	t.Logf("all have ended %.1f s after", time.Since(calm).Seconds())
	h := b.read()
	v, err := Judge(h, findTime)
	if err != nil {
		t.Fatal(err)
	}
	troubles, list := sum(counts)
	t.Logf("%d slicelets in %d processes; in %.0f s %d changes of the assignment in force and %d faults: %s",
		p.processes*p.slicelets, p.processes, took.Seconds(), len(changes), troubles, list)
	var when, last = "", began
	for _, at := range append(slices.Clone(changes), began.Add(took)) {
		if gap := at.Sub(last); gap > 5*time.Second {
			when += fmt.Sprintf(" %.1f s to %.1f s", last.Sub(began).Seconds(), at.Sub(began).Seconds())
		}
		last = at
	}
	t.Logf("more than 5 s without a change:%s", when)
	t.Logf("%d refusals tried again, %d operations given up, %d not begun", h.Counts["refusals"], h.Counts["given-up"], h.Counts["not-begun"])
	t.Log(v)
	t.Log(listeners(h))
	if err := v.Err(); err != nil {
		t.Error(err)
	}
	if len(changes) == 0 || v.Ops == 0 || v.Owners < p.processes*p.slicelets {
		t.Error("this was no test")
	}
}

// TestJudge is the short run: real processes, real signals, and relays that are cut.
func TestJudge(t *testing.T) {
	run(t, newLoopback(t), small(seed(t)), 20*time.Second, 1500*time.Millisecond, faults)
}
