package front

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of all jobs of a proxy.
type metrics struct {
	unregister func()
	results    []string
	noRule     prometheus.Counter
	reloads    *prometheus.CounterVec
	since      prometheus.Gauge
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
}

// Counts are the metrics of one job, found once.
type Counts struct {
	// Results are by Config.Results.
	Results []prometheus.Counter
	// NoKey are requests refused for want of a key, Limited those above the rule's limit, and
	// Gone those whose clients did not wait.
	NoKey, Limited, Gone prometheus.Counter
	// Seconds are how long requests took.
	Seconds prometheus.Observer
}

func newMetrics(reg prometheus.Registerer, results []string) (*metrics, error) {
	m := &metrics{
		unregister: func() {}, results: results,
		noRule: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slicer_proxy_no_rule_total", Help: "Requests that no rule fits.",
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicer_proxy_reloads_total",
			Help: "Times that the rules were read again, by whether they were in order; if not, the old ones stay.",
		}, []string{"result"}),
		since: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slicer_proxy_rules_loaded_timestamp_seconds", Help: "When the rules in force were set.",
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicer_proxy_requests_total",
			Help: "Requests that a rule fits, by the class of the answer's code, or the code with --grpc; no_key for those refused for want of one, limited for those above the rule's limit, and gone for clients that did not wait.",
		}, []string{"job", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "slicer_proxy_request_seconds", Help: "How long requests that a rule fits took, body included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"job"}),
	}
	for _, result := range []string{"loaded", "refused"} {
		m.reloads.WithLabelValues(result)
	}
	if reg == nil {
		return m, nil
	}
	all := []prometheus.Collector{m.noRule, m.reloads, m.since, m.requests, m.seconds}
	for i, c := range all {
		if err := reg.Register(c); err != nil {
			for _, c := range all[:i] {
				reg.Unregister(c)
			}
			return nil, err
		}
	}
	m.unregister = func() {
		for _, c := range all {
			reg.Unregister(c)
		}
	}
	return m, nil
}

// of makes a job's.
func (m *metrics) of(job string) *Counts {
	c := &Counts{
		NoKey: m.requests.WithLabelValues(job, "no_key"), Limited: m.requests.WithLabelValues(job, "limited"), Gone: m.requests.WithLabelValues(job, "gone"),
		Seconds: m.seconds.WithLabelValues(job),
	}
	for _, name := range m.results {
		c.Results = append(c.Results, m.requests.WithLabelValues(job, name))
	}
	return c
}

// drop forgets a job's.
func (m *metrics) drop(job string) {
	m.requests.DeletePartialMatch(prometheus.Labels{"job": job})
	m.seconds.DeletePartialMatch(prometheus.Labels{"job": job})
}
