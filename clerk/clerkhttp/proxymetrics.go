package clerkhttp

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// proxyMetrics are those of all jobs of a proxy.
type proxyMetrics struct {
	unregister func()
	noRule     prometheus.Counter
	reloads    *prometheus.CounterVec
	since      prometheus.Gauge
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec

	mu     sync.Mutex
	counts map[string]*routeCounts
	users  map[string]int
}

// routeCounts are those of one job, found once.
type routeCounts struct {
	classes     [5]prometheus.Counter // 1xx to 5xx
	noKey, gone prometheus.Counter
	seconds     prometheus.Observer
}

var classNames = [5]string{"1xx", "2xx", "3xx", "4xx", "5xx"}

func newProxyMetrics(reg prometheus.Registerer) (*proxyMetrics, error) {
	m := &proxyMetrics{
		unregister: func() {},
		counts:     map[string]*routeCounts{}, users: map[string]int{},
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
			Help: "Requests that a rule fits, by the class of the answer's code, no_key for those refused for want of one, and gone for clients that did not wait.",
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

func (m *proxyMetrics) close() { m.unregister() }

func (m *proxyMetrics) of(job string) *routeCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users[job]++
	c := m.counts[job]
	if c == nil {
		c = &routeCounts{
			noKey: m.requests.WithLabelValues(job, "no_key"), gone: m.requests.WithLabelValues(job, "gone"),
			seconds: m.seconds.WithLabelValues(job),
		}
		for i, name := range classNames {
			c.classes[i] = m.requests.WithLabelValues(job, name)
		}
		m.counts[job] = c
	}
	return c
}

// drop forgets a job's metrics with its last user.
func (m *proxyMetrics) drop(job string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users[job]--; m.users[job] > 0 {
		return
	}
	delete(m.users, job)
	delete(m.counts, job)
	m.requests.DeletePartialMatch(prometheus.Labels{"job": job})
	m.seconds.DeletePartialMatch(prometheus.Labels{"job": job})
}

func (c *routeCounts) of(code int) prometheus.Counter {
	if code < 100 || code > 599 {
		code = http.StatusInternalServerError
	}
	return c.classes[code/100-1]
}
