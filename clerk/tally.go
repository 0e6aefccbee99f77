package clerk

import (
	"runtime"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment/percore"
)

// tally counts selections: lookups that found an owner and those that did not
// (Slicer paper, section 5.1). It is a prometheus.Collector.
//
// Each core counts in a cell of its own, so that lookups on many cores do not pass one cache
// line to and fro, and without an atomic addition: that would make a lookup wait for the memory
// of the one before.
type tally struct {
	missed atomic.Uint64
	cells  []cell
	beyond atomic.Uint64 // counted on cores that have come later
	desc   *prometheus.Desc
}

type cell struct {
	n uint64
	_ [120]byte // to the end of the pair of cache lines that are fetched together
}

func newTally() *tally {
	return &tally{
		cells: make([]cell, runtime.GOMAXPROCS(0)),
		desc: prometheus.NewDesc("slicer_clerk_selections_total",
			"Lookups, by whether they found an owner.", []string{"result"}, nil),
	}
}

func (t *tally) found() { t.add(1) }

func (t *tally) add(n uint64) {
	if core := percore.Pin(); core < len(t.cells) {
		count(&t.cells[core].n, n)
	} else {
		t.beyond.Add(n)
	}
	percore.Unpin()
}

// Selected counts a selection as Lookup does. It is for what looks keys up in
// Assignment or in Subset's, as gRPC's balancer does.
func (c *Clerk) Selected(found bool) {
	if found {
		c.tally.found()
	} else {
		c.tally.missed.Add(1)
	}
}

func (t *tally) sum() (n uint64) {
	n = t.beyond.Load()
	for i := range t.cells {
		n += atomic.LoadUint64(&t.cells[i].n)
	}
	return n
}

// Describe is prometheus.Collector's.
func (t *tally) Describe(ch chan<- *prometheus.Desc) { ch <- t.desc }

// Collect is prometheus.Collector's.
func (t *tally) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(t.desc, prometheus.CounterValue, float64(t.sum()), "found")
	ch <- prometheus.MustNewConstMetric(t.desc, prometheus.CounterValue, float64(t.missed.Load()), "not_found")
}
