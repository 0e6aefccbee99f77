package clerkhttp

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// What became of a request.
const (
	byOwner = iota // an owner of the key answered
	byOther        // another task did
	keyless        // the request had no key, and a task answered
	unanswered
	numResults
)

var resultNames = [numResults]string{"owner", "other", "keyless", "failed"}

// Why a request was sent again.
const (
	failedOnce = iota
	refusedOnce
	lostOnce
	fullOnce
	numRetries
)

var retryNames = [numRetries]string{"failed", "refused", "lost", "overloaded"}

// tally counts requests. It is a prometheus.Collector.
type tally struct {
	requests [numResults]atomic.Uint64
	retries  [numRetries]atomic.Uint64
}

var (
	requestsDesc = prometheus.NewDesc("slicer_clerkhttp_requests_total",
		"HTTP requests, by what answered: an owner of the key, another task, any task for want of a key, or none.", []string{"result"}, nil)
	retriesDesc = prometheus.NewDesc("slicer_clerkhttp_retries_total",
		"HTTP requests sent again, by why: the task failed, refused the key, lost it while the request ran, or was overloaded.", []string{"reason"}, nil)
)

func (t *tally) sent(keyed, owner bool) {
	switch {
	case !keyed:
		t.requests[keyless].Add(1)
	case owner:
		t.requests[byOwner].Add(1)
	default:
		t.requests[byOther].Add(1)
	}
}

// Describe is prometheus.Collector's.
func (t *tally) Describe(ch chan<- *prometheus.Desc) {
	ch <- requestsDesc
	ch <- retriesDesc
}

// Collect is prometheus.Collector's.
func (t *tally) Collect(ch chan<- prometheus.Metric) {
	for i, name := range resultNames {
		ch <- prometheus.MustNewConstMetric(requestsDesc, prometheus.CounterValue, float64(t.requests[i].Load()), name)
	}
	for i, name := range retryNames {
		ch <- prometheus.MustNewConstMetric(retriesDesc, prometheus.CounterValue, float64(t.retries[i].Load()), name)
	}
}
