package clerk

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// tally counts selections: lookups that found an owner and those that did not
// (Slicer paper, section 5.1). It is a prometheus.Collector.
//
// Each core counts in a cell of its own, so that lookups on many cores do not
// pass one cache line to and fro: sync.Pool keeps what was put back on the core
// where it will be taken next.
type tally struct {
	missed atomic.Uint64
	cells  []cell
	next   atomic.Uint32
	pool   sync.Pool
	desc   *prometheus.Desc
}

// cell is counted in atomically all the same: there may be more holders than
// cells, and collectors read it.
type cell struct {
	n atomic.Uint64
	_ [120]byte // to the end of the pair of cache lines that are fetched together
}

func newTally() *tally {
	n := 1
	for n < runtime.GOMAXPROCS(0) {
		n *= 2
	}
	t := &tally{
		cells: make([]cell, n),
		desc: prometheus.NewDesc("slicer_clerk_selections_total",
			"Lookups, by whether they found an owner.", []string{"result"}, nil),
	}
	t.pool.New = func() any { return &t.cells[int(t.next.Add(1))&(n-1)] }
	return t
}

func (t *tally) found() { t.add(1) }

func (t *tally) add(n uint64) {
	c := t.pool.Get().(*cell)
	c.n.Add(n)
	t.pool.Put(c)
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
	for i := range t.cells {
		n += t.cells[i].n.Load()
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
