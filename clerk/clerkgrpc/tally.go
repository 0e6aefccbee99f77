package clerkgrpc

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// tally counts what is not as it should be; RPCs sent to an owner are counted by
// the clerk. It is a prometheus.Collector.
type tally struct {
	elsewhere atomic.Uint64
	waited    atomic.Uint64
	refused   atomic.Uint64
	lost      atomic.Uint64
	keyless   atomic.Uint64
	// overloaded are those sent again since a task had no room.
	overloaded atomic.Uint64
}

func newTally() *tally { return &tally{} }

var (
	elsewhereDesc = prometheus.NewDesc("slicer_clerkgrpc_elsewhere_total",
		"RPCs sent to a task that does not own their key, since no owner can be reached.", nil, nil)
	waitedDesc = prometheus.NewDesc("slicer_clerkgrpc_waits_total",
		"Times that an RPC waited for a connection to an owner.", nil, nil)
	refusedDesc = prometheus.NewDesc("slicer_clerkgrpc_refusals_total",
		"Times that a task refused an RPC since the key is not its own, in consistent mode.", nil, nil)
	lostDesc = prometheus.NewDesc("slicer_clerkgrpc_ownership_lost_total",
		"RPCs sent again since their task lost the key while they ran, which they are marked as safe for.", nil, nil)
	overloadedDesc = prometheus.NewDesc("slicer_clerkgrpc_overloaded_total",
		"RPCs sent to another task since one had no room for them.", nil, nil)
	keylessDesc = prometheus.NewDesc("slicer_clerkgrpc_keyless_total",
		"RPCs without a key sent to any task.", nil, nil)
)

// Describe is prometheus.Collector's.
func (t *tally) Describe(ch chan<- *prometheus.Desc) {
	ch <- elsewhereDesc
	ch <- waitedDesc
	ch <- refusedDesc
	ch <- lostDesc
	ch <- overloadedDesc
	ch <- keylessDesc
}

// Collect is prometheus.Collector's.
func (t *tally) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []struct {
		desc *prometheus.Desc
		n    *atomic.Uint64
	}{{elsewhereDesc, &t.elsewhere}, {waitedDesc, &t.waited}, {refusedDesc, &t.refused}, {lostDesc, &t.lost}, {overloadedDesc, &t.overloaded}, {keylessDesc, &t.keyless}} {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(c.n.Load()))
	}
}
