package certs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	expiryDesc = prometheus.NewDesc("slicer_tls_expiry_seconds",
		"Time until the first certificate in use expires, of the process's own and those between it and its authority (certificate) or of the authorities that others are checked by; below 0 once it has.", []string{"of"}, nil)
	loadedDesc = prometheus.NewDesc("slicer_tls_loaded_timestamp_seconds",
		"When what is in use was read, certificate or authorities.", []string{"of"}, nil)
	staleDesc = prometheus.NewDesc("slicer_tls_stale",
		"1 while the files hold something that is no good, or are gone, so that what was read before is in use.", []string{"of"}, nil)
	failuresDesc = prometheus.NewDesc("slicer_tls_reload_failures_total",
		"Times that files had changed and were no good.", []string{"of"}, nil)
	refusedDesc = prometheus.NewDesc("slicer_tls_handshakes_failed_total",
		"TLS handshakes of clients that came to nothing, by why: no_certificate, unknown_authority, expired, bad_certificate, plain_text, refused_by_client, closed, timeout or other.", []string{"reason"}, nil)
)

// collector looks at the files when it is asked, so that what is wrong with them shows on a
// process that nothing connects to.
type collector struct{ s *Source }

// Describe is prometheus.Collector's.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{expiryDesc, loadedDesc, staleDesc, failuresDesc, refusedDesc} {
		to <- d
	}
}

// Collect is prometheus.Collector's.
func (c collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label)
	}
	counter := func(d *prometheus.Desc, v int, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), label)
	}
	for _, f := range c.s.state() {
		gauge(expiryDesc, time.Until(f.expires).Seconds(), f.of)
		gauge(loadedDesc, float64(f.loaded.UnixMilli())/1000, f.of)
		stale := 0.
		if f.bad != "" {
			stale = 1
		}
		gauge(staleDesc, stale, f.of)
		counter(failuresDesc, f.failures, f.of)
	}
	for reason, n := range c.s.refused.counts() {
		counter(refusedDesc, n, reason)
	}
}

// state returns copies of what is known of the files.
func (s *Source) state() (all []slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.lookLocked(false)
	for _, f := range s.slots {
		all = append(all, *f)
	}
	return all
}
